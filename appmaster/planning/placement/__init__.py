"""What the passes of a turn share, and which container may hold which copy. Pure."""
