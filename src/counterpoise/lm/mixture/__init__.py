"""Samples of many domains, drawn by weights that may change at any time."""
