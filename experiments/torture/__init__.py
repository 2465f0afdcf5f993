"""Attacks on files, processes and numbers, with a table of what held: ``make torture``."""
