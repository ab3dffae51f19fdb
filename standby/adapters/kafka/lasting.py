"""A client of Kafka that is replaced when it gets no more answers.

A librdkafka client can lose its brokers for good. A cluster in which all brokers are fenced for a moment, as one that
stands still for longer than its session, lists none of them in its metadata; the client drops all that it knew and,
when the connection breaks at that moment, never goes back to its bootstrap servers (confluentinc/librdkafka issue
5301, seen with 2.16). From then on it answers every question with "no leaders", whatever the cluster does.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar

from standby.adapters.kafka import clients
from standby.adapters.kafka.clients import ClientKind
from standby.adapters.kafka.refusals import Refusals
from standby.config import KafkaSettings
from standby.shared.clock import REAL

_log: Final = logging.getLogger(__name__)

#: Longer than a broker needs to be back, or one question to time out.
_PATIENCE_SECONDS: Final = 8.0

C = TypeVar("C")


class Lasting(Generic[C]):
    """Hands a client out to whoever asks something; from any thread."""

    def __init__(
        self,
        make: Callable[[], C],
        now: Callable[[], float] = REAL.monotonic,
        explain: Callable[[BaseException, C], None] = lambda _error, _client: None,
    ) -> None:
        """``now`` is monotonic; ``explain`` may add to the message of an error of a client's."""
        self._make = make
        self._now = now
        self._explain = explain
        self._lock = threading.Lock()
        # All below is guarded by it.
        self._client = make()
        #: Others may still wait for answers of the one before.
        self._former: C | None = None
        self._failing_since: float | None = None

    @contextmanager
    def use(self) -> Iterator[C]:
        """Have the block ask the client, and wait for the answer; what it raises counts as none."""
        with self._lock:
            client = self._client
        try:
            yield client
        except Exception as error:
            self._note_failure(client)
            self._explain(error, client)
            raise
        with self._lock:
            if client is self._client:
                self._failing_since = None

    def _note_failure(self, client: C) -> None:
        with self._lock:
            if client is not self._client:
                return
            now = self._now()
            if self._failing_since is None:
                self._failing_since = now
            elif now - self._failing_since > _PATIENCE_SECONDS:
                _log.warning("no answers from Kafka for %.0f s: a new client asks", now - self._failing_since)
                self._former, self._client = client, self._make()
                self._failing_since = None


def lasting(
    kind: ClientKind[clients.C],
    settings: KafkaSettings,
    own: KafkaSettings | None = None,
    refusals: Refusals | None = None,
    **more: Any,
) -> Lasting[clients.C]:
    """Return clients of a kind whose failures say why a broker does not let them in.

    ``refusals`` remembers that; where nobody else asks it, it is made here. The rest is as in `ClientKind.make`.
    """
    told = refusals or Refusals()
    return Lasting(lambda: kind.make(settings, own, error_cb=told.note, **more), explain=told.explain)
