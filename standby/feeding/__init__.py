"""Feeding the active tasks of a processor: the decisions (`core`); `standby.kernel.pipeline` executes them."""
