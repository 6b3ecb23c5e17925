"""Measurements: one script, one question. README.md says how to read what they print; ``python -m perf`` runs
all."""
