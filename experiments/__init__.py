"""Studies and scripts around the library; run them from the repository's root."""
