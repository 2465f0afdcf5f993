"""Files on disk: complete or absent ones, stored models, ONNX export.

It imports `common`, `dual` and `activations`. The types it may read are listed by name in
`packing`, so any room may use it.
"""
