"""``python -m counterpoise``, and so ``torchrun -m counterpoise``."""

from counterpoise.cli.main import script

if __name__ == "__main__":
    script()
