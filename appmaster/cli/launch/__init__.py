"""How a job reaches YARN and ends there: checks, a probe of a host, its code, the cells' applications, its end."""
