"""The embedded cluster's use of this machine: processes, ports, names of directories."""
