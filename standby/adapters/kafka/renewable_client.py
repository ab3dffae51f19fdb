"""A Kafka client that is replaced when it no longer gets answers.

A librdkafka client can lose its brokers permanently. When all brokers of a cluster are fenced for a moment, for
example after a suspension longer than their session, the metadata lists none of them. The client then drops all
known brokers and, if the connection breaks at that moment, never returns to its bootstrap servers
(confluentinc/librdkafka issue 5301, observed with 2.16). From then on, every request fails with "no leaders",
whatever the cluster does.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar

from standby.adapters.kafka import clients
from standby.adapters.kafka.clients import ClientKind
from standby.adapters.kafka.refusals import Refusals, take_told
from standby.config import KafkaSettings
from standby.errors import Transient
from standby.shared.clock import REAL

_log: Final = logging.getLogger(__name__)

#: Longer than a broker's restart, and than the time-out of a request.
_PATIENCE_SECONDS: Final = 8.0

#: The message of `Transient` for a request after the end of the clients.
CLOSED: Final = "Kafka is not asked any more: the job has ended here"

C = TypeVar("C")


class RenewableClient(Generic[C]):
    """Provides the client for requests. Thread-safe."""

    def __init__(
        self,
        make: Callable[[], C],
        now: Callable[[], float] = REAL.monotonic,
        explain: Callable[[BaseException, C], None] = lambda _error, _client: None,
    ) -> None:
        """``now`` is monotonic; ``explain`` may extend the message of a client's error."""
        self._make = make
        self._now = now
        self._explain = explain
        self._lock = threading.Lock()
        # Guards everything below.
        self._client: C | None = make()
        #: Other threads may still be waiting for answers of the former client.
        self._former: C | None = None
        self._failing_since: float | None = None

    def present(self) -> C:
        """Return the client, for what needs no answer. Raises `Transient` once it is closed.

        It must not be kept: it would not end with the job.
        """
        with self._lock:
            client = self._client
        if client is None:
            raise Transient(CLOSED)
        return client

    @contextmanager
    def use(self, client: C | None = None) -> Iterator[C]:
        """Run the block, which must wait for an answer, with the client, or with the one that was asked already.

        An error counts as no answer. Raises `Transient` once it is closed.
        """
        client = self.present() if client is None else client
        try:
            yield client
        except Exception as error:
            self._note_failure(client)
            self._explain(error, client)
            raise
        with self._lock:
            if client is self._client:
                self._failing_since = None

    def replace(self, client: C) -> None:
        """Replace ``client``, if it is the present one, without waiting for more failures."""
        with self._lock:
            if client is self._client:
                self._replace()

    def idle(self) -> None:
        """Take what the client tells by itself, for example of each refused connection; to be called now and then.

        Nothing else takes it while there are no failing requests, and the client keeps it: 30 MB an hour while all
        brokers are away.
        """
        with self._lock:
            client: Any = self._client
        if client is not None:
            take_told(client)

    def close(self) -> None:
        """Release the clients, which end as soon as no other thread uses them; does not wait for that.

        Only references are dropped, because closing a client that another thread is using may crash the process.
        """
        with self._lock:
            held = [self._client, self._former]
            self._client = self._former = None
        # The end of a client waits for its threads, of which one may be looking up a host name.
        threading.Thread(target=held.clear, name="clients-end", daemon=True).start()

    def _note_failure(self, client: C) -> None:
        with self._lock:
            if client is not self._client:
                return
            now = self._now()
            if self._failing_since is None:
                self._failing_since = now
            elif now - self._failing_since > _PATIENCE_SECONDS:
                _log.warning(
                    "no answers from Kafka for %.0f s: replacing the client", now - self._failing_since
                )
                self._replace()

    def _replace(self) -> None:
        self._former, self._client = self._client, self._make()
        self._failing_since = None


def lasting(
    kind: ClientKind[clients.C],
    settings: KafkaSettings,
    own: KafkaSettings | None = None,
    refusals: Refusals | None = None,
    **more: Any,
) -> RenewableClient[clients.C]:
    """Return clients of a kind, whose errors include the reason of a refused login.

    ``refusals`` remembers the reason; created here by default. The rest is as in `ClientKind.make`.
    """
    noted = refusals or Refusals()
    return RenewableClient(
        lambda: kind.make(settings, own, error_cb=noted.note, **more), explain=noted.explain
    )
