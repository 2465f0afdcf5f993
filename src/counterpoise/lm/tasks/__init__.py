"""Score models on downstream tasks with lm-evaluation-harness, from the hub or local files.

Stands on `counterpoise.lm.evaluate` and `counterpoise.storage`.
"""
