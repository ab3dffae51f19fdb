"""The parent of Spark's Python workers, in place of `pyspark.daemon`: they do not search libraries for garbage.

Spark's worker collects all garbage after each task. With the libraries loaded that it needs itself, this takes 20 ms
of processor time, and hardly any when their objects are left out.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from socket import socket

from pyspark import daemon


def _leaving_out(run: Callable[[socket, bool], int]) -> Callable[[socket, bool], int]:
    """Return ``run``, which runs a task of a worker; what its first task leaves is not looked at again."""
    # The number of objects that are left out is not at hand: they would be counted.
    is_first = True

    def run_task(sock: socket, authenticated: bool) -> int:
        nonlocal is_first
        code = run(sock, authenticated)
        if is_first:
            is_first = False
            gc.collect()
            gc.freeze()
        return code

    return run_task


if __name__ == "__main__":
    # Each worker is forked before its first task.
    daemon.worker = _leaving_out(daemon.worker)  # type: ignore[assignment]  # with another name
    daemon.manager()
