"""How good a fit is: metrics by group, intervals, held-out risks, diagnosis, the record of a fit.

It takes any fitted estimator but imports none; it stands on `solver` and `report`.
"""
