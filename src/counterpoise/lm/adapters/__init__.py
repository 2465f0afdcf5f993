"""Adapters for trainers that people use: Hugging Face, Lightning, torchtitan, TRL; also Composer.

Each stands on `mixture` and `steering`, and is imported by its own name.
"""
