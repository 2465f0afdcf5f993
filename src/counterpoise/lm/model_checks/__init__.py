"""What a model's files may say and hold, checked before transformers opens them.

Stands on `counterpoise.common` and `counterpoise.storage`; needs neither torch nor transformers.
"""
