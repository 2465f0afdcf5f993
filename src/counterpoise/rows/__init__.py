"""Rows and their groups, in memory or elsewhere, and the engines that read them.

It knows nothing of group weights and imports only `activations` and `common`.
"""
