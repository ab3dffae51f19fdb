"""The control loop of a container: what it decides (`core`), and what carries events in and effects out (`loop`)."""
