"""Engines: who reads the rows.

An engine knows rows and groups and nothing of group weights. It answers a handful of
questions, each in one read of the rows, and counts the reads.
"""
