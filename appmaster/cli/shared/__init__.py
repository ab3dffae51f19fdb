"""What all commands use: parsers and output, the job file, the cluster, YARN, and how long a command takes."""
