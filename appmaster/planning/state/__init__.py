"""What the leader knows and can do, and what can happen: the vocabulary of everything else. Pure."""
