"""The leader's view, and its events and actions; every other room of the planner uses them. Pure."""
