"""The solver: Algorithm 1, the polish, and the certificate.

It imports `dual`, `rows`, `activations` and `common`.
"""
