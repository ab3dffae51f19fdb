"""A container's control loop: its decisions (`core`), and the loop that executes effects (`loop`)."""
