"""The pinned jars: which they are, the cache, and their download with Ivy."""
