"""One adapter per product, at most 60 lines each: they move bytes; what is measured and checked is the
workloads' matter."""
