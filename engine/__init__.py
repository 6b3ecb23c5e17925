"""Decisions: pure machines, and the drivers that do their I/O. README.md follows one message through them."""
