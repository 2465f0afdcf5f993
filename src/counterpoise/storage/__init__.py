"""Files on disk: complete or absent ones, stored models, ONNX export.

It imports `common` and `activations`. Stored types are found by name, so any room may use it.
"""
