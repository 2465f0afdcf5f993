"""What is minimised. An objective is a module with a NAME and a function ``nu(y, model)``."""

from objectives import kl, worst_group

TOLERANCES = (1e-2, 1e-3, 1e-4, 1e-6)  # how close to the best known risk, relative to it
OBJECTIVES = {module.NAME: module for module in (worst_group, kl)}
