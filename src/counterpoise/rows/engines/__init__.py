"""Engines, which read the rows.

An engine knows rows and groups, but not group weights. It answers a few questions, each in one
pass over the rows, and counts the passes.
"""
