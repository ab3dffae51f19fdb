"""What all commands share: parsers and output, the job file, the cluster, YARN, and time limits."""
