"""From rows to a certified solution: Algorithm 1, the polish, and the certificate.

It imports `dual`, `rows`, `activations` and `common`.
"""
