"""The dual update for models that another optimizer trains: `Reweighter` and its rules.

It needs numpy alone and imports only `dual` and `common`.
"""
