"""The stream of input: a thread that produces at a rate which can be changed."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from examples.flights.replay import replay
from examples.flights.source import Raw


class Traffic:
    """Produces records to the input topic on a separate thread, from `start` until `stop` or the last record."""

    def __init__(self, bootstrap: str, records: Iterable[Raw], rate: float) -> None:
        self._bootstrap = bootstrap
        self._records = records
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)
        self._failure: BaseException | None = None
        self.rate = rate
        """Records per second; may be changed at any time."""
        self.count = 0
        """Records passed to the producer so far."""

    def start(self) -> None:
        """Start producing."""
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether every record was produced, or the thread was stopped or failed."""
        return not self._thread.is_alive()

    def join(self, timeout_seconds: float) -> bool:
        """Wait for the end, at most for the given time, and return whether it came; raises the thread's error."""
        self._thread.join(timeout_seconds)
        if self._failure is not None:
            raise self._failure
        return self.is_over

    def stop(self) -> None:
        """End early, after all records passed to the producer have reached the broker; harmless after the end."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            for count in replay(self._bootstrap, self._records, lambda: self.rate, self._stop):
                self.count = count
        except Exception as error:  # noqa: BLE001 - the thread's outermost loop; join() raises it
            self._failure = error
