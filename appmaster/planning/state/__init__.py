"""The leader's view, and its events and actions; every other folder of the planner uses them. Pure."""
