"""Rules of a feed that need no Spark session: plans, settings, batch sizes, the meaning of errors."""
