"""``standfast run``: a job and all that it needs on this machine, for as long as the command runs."""
