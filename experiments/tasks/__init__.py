"""Local files of downstream tasks, for machines that do not reach the Hugging Face hub."""
