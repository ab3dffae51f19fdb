"""One replica: the worker that runs its effects, how it obtains its state, and the steps to become active."""
