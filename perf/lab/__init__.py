"""The speed lab: holdfast beside other products, same work, one run, in turns (``make perf-lab``,
perf/LAB.md)."""
