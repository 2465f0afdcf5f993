"""Rows and their groups, in memory or elsewhere, and the engines that read them.

This room does not know about group weights. It imports only `storage`, `activations` and
`common`.
"""
