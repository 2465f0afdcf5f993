"""Compare many runs: rules and seeds from one file, paired statistics, tables, figures.

Stands on `training`.
"""
