"""Rules of a feed that need no Spark: the settings of a session, and sizes of batches."""
