"""What is minimised. An objective is a module with a NAME and a function ``nu(y)``."""

from objectives import kl, worst_group

OBJECTIVES = {module.NAME: module for module in (worst_group, kl)}
