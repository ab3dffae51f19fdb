"""Remembers why a client's login is refused, by brokers or by the token server.

librdkafka reconnects for ever. Meanwhile, requests fail only with a time-out or a transport error; the cause is
passed to the client's ``error_cb``, which runs when the client is polled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, KafkaException

from standby.errors import Transient
from standby.shared.clock import REAL

#: Error codes of a failed login or handshake.
_CAUSES: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,  # noqa: SLF001 - librdkafka's own errors are named like this
        KafkaError._SSL,  # noqa: SLF001
        KafkaError.SASL_AUTHENTICATION_FAILED,
    }
)

#: Error codes of requests without an answer.
_MUTE: Final = frozenset(
    {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}  # noqa: SLF001
)

#: How long a cause explains failures. librdkafka requests a token every 10 s, and reconnects more often.
_VALID_SECONDS: Final = 30.0


class Polled(Protocol):
    """A librdkafka client of any kind."""

    def poll(self, timeout: float = ..., /) -> Any:
        """Run callbacks that are due."""


def take_told(client: Polled) -> None:
    """Run the callbacks that are due, for example for each refused connection; until then the client keeps them."""
    # Raised by a client that was closed meanwhile, or by a fenced producer.
    with contextlib.suppress(RuntimeError, SystemError, KafkaException):
        client.poll(0)


class Refusals:
    """Remembers the last cause reported to one client, or to several with the same settings. Thread-safe."""

    def __init__(self, now: Callable[[], float] = REAL.monotonic) -> None:
        """``now`` is monotonic."""
        self._now = now
        # Only ever replaced as a whole.
        self._last: tuple[float, str] | None = None

    def note(self, error: KafkaError) -> None:
        """Record an error passed to a client's ``error_cb``."""
        if error.code() in _CAUSES:
            self._last = (self._now(), error.str())

    def why(self, client: Polled | None = None) -> str:
        """Return the cause if there is a recent one, otherwise an empty text; ``client`` is polled first."""
        if client is not None:
            take_told(client)
        last = self._last
        return "" if last is None or self._now() - last[0] > _VALID_SECONDS else last[1]

    def explain(self, error: BaseException, client: Polled | None = None) -> None:
        """Add the cause to the message of ``error``, if that only reports a missing answer."""
        if isinstance(error, KafkaException):
            reason = error.args[0]
            if isinstance(reason, KafkaError) and reason.code() in _MUTE and (why := self.why(client)):
                error.args = (KafkaError(reason.code(), f"{reason.str()}: {why}"),)
        elif isinstance(error, Transient) and (why := self.why(client)) and why not in str(error):
            error.args = (f"{error}: {why}",)
