"""What is kept on disk: files that are whole or absent, stored models, ONNX export.

It imports `common` and `activations`. Stored types are found by name, so any room may use it.
"""
