"""Drop-ins for trainers that people use: Hugging Face, Lightning, Composer."""
