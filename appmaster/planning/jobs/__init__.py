"""A job as a whole: its next model, its status, and commands of operators. Pure."""
