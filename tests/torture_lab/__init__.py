"""The torture lab: faults that are put into whole programs and into what they leave on disk. tests/README.md
lists the parts.

PYTHONPATH=tests python -m torture_lab PART [--tiny | --short] [--seed S]
"""
