"""Feeding the active tasks of a processor: what is decided (`core`); `standby.kernel.pipeline` carries it out."""
