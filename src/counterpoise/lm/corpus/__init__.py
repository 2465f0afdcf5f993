"""Text to tokens on disk: documents, tokenizers, and the token files of every domain.

Stands on `counterpoise.common`, `counterpoise.rows` (for Parquet) and `counterpoise.storage`.
"""
