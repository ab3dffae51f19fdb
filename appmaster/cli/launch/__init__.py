"""A job on its way to YARN and off it: checks, a look at a host, its code, the cells' applications, its end."""
