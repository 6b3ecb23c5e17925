"""A soak: stores, sources and receivers at work for half an hour, under kills, beside every command of an
operator."""
