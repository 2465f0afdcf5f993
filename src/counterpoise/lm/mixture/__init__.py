"""Samples of several domains, drawn by weights that may change at any time.

Stands on `corpus`.
"""
