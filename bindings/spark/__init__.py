"""holdfast topics as Spark tables and streams."""
