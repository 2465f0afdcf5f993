"""Downstream tasks by lm-evaluation-harness, with data from the hub or from this disk."""
