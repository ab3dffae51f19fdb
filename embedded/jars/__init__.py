"""The pinned jars: the lock file, the cache, and the download with Ivy."""
