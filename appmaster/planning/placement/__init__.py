"""What a turn looks at, and which container may hold what. Pure."""
