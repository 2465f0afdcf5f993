"""The page about a fit: a view of the record, and one module for each section."""
