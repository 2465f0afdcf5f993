"""Train one model: settings, run folder, checkpoints, estimates, reference losses.

Stands on `corpus`, `mixture`, `steering`, `evaluate`, `logs` and `tasks`.
"""
