"""What is decided of a feed without a session of Spark: plans, settings, sizes of batches, what errors mean."""
