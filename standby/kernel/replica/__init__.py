"""One replica: its worker and what it carries out, how it gets its state, and its way to active."""
