"""Which containers are lost, and the assignment of each. Pure."""
