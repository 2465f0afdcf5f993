"""The command ``counterpoise``: one module per command; the only room that knows options.

It may import every other room, and imports each when a command needs it.
"""
