"""The leader's metrics for Prometheus: counters from the event log, and gauges from the view."""
