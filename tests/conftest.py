"""Test set-up."""

import os

# Lets scikit-learn's conformance run include its array-API checks; read when SciPy is imported.
os.environ.setdefault("SCIPY_ARRAY_API", "1")
