"""Diagnosis of data: whether the theory's assumptions hold, and what to do if they do not."""
