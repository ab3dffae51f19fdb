"""What a submit needs on its way to YARN: its time, how it is undone, a look at a host, what YARN says of an end."""
