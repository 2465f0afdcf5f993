"""Where the rows come from. Every module lists its SOURCES."""

from datasets import (
    bikeshare,
    compas,
    corrupted,
    crime,
    diamonds,
    flights,
    flights_3m,
    rtables,
    synthetic,
    tables,
)

MODULES = (
    synthetic, corrupted, diamonds, bikeshare, flights, crime, compas, flights_3m, tables, rtables,
)  # fmt: skip
SOURCES = {source.name: source for module in MODULES for source in module.SOURCES}
