"""Why a client is not let in: by brokers, or by the server that gives out tokens.

librdkafka connects again for ever. Whoever asks something meanwhile hears only that time ran out or that the transport
failed; the cause goes to the client's ``error_cb``, which runs when the client is polled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, KafkaException

from standby.errors import Transient
from standby.shared.clock import REAL

#: What a login or a handshake fails with.
_CAUSES: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,  # noqa: SLF001 - librdkafka's own errors are named like this
        KafkaError._SSL,  # noqa: SLF001
        KafkaError.SASL_AUTHENTICATION_FAILED,
    }
)

#: What a question fails with that had no answer.
_MUTE: Final = frozenset(
    {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}  # noqa: SLF001
)

#: For so long a cause explains failures. librdkafka asks for a token again every 10 s, for a connection more often.
_VALID_SECONDS: Final = 30.0


class Polled(Protocol):
    """A client of librdkafka, of any kind."""

    def poll(self, timeout: float = ..., /) -> Any:
        """Run callbacks that are due."""


class Refusals:
    """Remembers the last cause that one client, or several of the same settings, were told. From any thread."""

    def __init__(self, now: Callable[[], float] = REAL.monotonic) -> None:
        """``now`` is monotonic."""
        self._now = now
        # Replaced as a whole.
        self._last: tuple[float, str] | None = None

    def note(self, error: KafkaError) -> None:
        """Take note of what a client's ``error_cb`` is told."""
        if error.code() in _CAUSES:
            self._last = (self._now(), error.str())

    def why(self, client: Polled | None = None) -> str:
        """Return the cause if there is a recent one, else an empty text; ``client`` is polled before."""
        if client is not None:
            # Raised by one that somebody has closed meanwhile, or by a producer that was fenced.
            with contextlib.suppress(RuntimeError, SystemError, KafkaException):
                client.poll(0)
        last = self._last
        return "" if last is None or self._now() - last[0] > _VALID_SECONDS else last[1]

    def explain(self, error: BaseException, client: Polled | None = None) -> None:
        """Add the cause to the message of ``error``, where that says only that there was no answer."""
        if isinstance(error, KafkaException):
            reason = error.args[0]
            if isinstance(reason, KafkaError) and reason.code() in _MUTE and (why := self.why(client)):
                error.args = (KafkaError(reason.code(), f"{reason.str()}: {why}"),)
        elif isinstance(error, Transient) and (why := self.why(client)) and why not in str(error):
            error.args = (f"{error}: {why}",)
