"""Group weights: divergences on the simplex, the one function that moves weights, the objective.

It knows K numbers and no rows, needs numpy alone, and imports only `common`.
"""
