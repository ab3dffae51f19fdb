"""This machine, as the embedded cluster uses it: processes, ports, names of directories."""
