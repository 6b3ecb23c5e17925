"""Found by Spark by its name: a top-level package ``pyspark_*`` with ``DefaultSource`` is registered as a data source."""
