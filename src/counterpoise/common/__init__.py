"""What every room may use: argument checks, progress, JSON, TOML, facts about the machine.

It imports nothing of the package but itself.
"""
