"""What the leader shows to Prometheus: what it counts of the event log, and what its view looks like."""
