"""Do the theory's assumptions hold for this data, and is worst-group training wise here?"""
