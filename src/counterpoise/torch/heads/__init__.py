"""Last layers of deep models: embed the rows once, fit the head, write it back.

`batches` reads loaders, `layers` finds the last layer, `embedding` runs the body, `rows` keeps what
it gives, `labels` turns fits into weights, and `head` does all of it.
"""
