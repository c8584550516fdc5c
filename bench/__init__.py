"""Benchmarks: each module prints one JSON object with its figures, its goal and whether it was met."""
