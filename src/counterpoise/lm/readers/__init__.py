"""Readers of published weights, for loaders that are not ours.

`plain` mixes any Python iterables; `hf`, `torchdata` and `megatron` serve the loaders of these
names. Each stands on `published` and is imported by its own name.
"""
