"""The command ``counterpoise``."""
