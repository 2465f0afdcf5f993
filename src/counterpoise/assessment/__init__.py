"""Assessment of a fit: metrics by group, intervals, held-out risks, diagnosis, and the record.

It accepts any fitted estimator but imports none. It imports `solver` and `report`.
"""
