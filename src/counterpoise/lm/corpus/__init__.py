"""Text to tokens on disk: documents, tokenizers, and the token files of every domain."""
