"""Commands that start, change and end a job."""
