"""One module per target; importing it registers its attacks."""
