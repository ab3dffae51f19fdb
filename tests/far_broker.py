"""A Kafka broker that some clients reach over a connection which can be cut."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from embedded.machine.ports import free_ports
from embedded.servers import LOOPBACK
from tests.servers.broker import OwnBroker
from tests.wire import Wire

if TYPE_CHECKING:
    from typing_extensions import Self


class FarBroker(OwnBroker):
    """One broker; connections to its address ``far`` go through ``wire``."""

    def __init__(self, directory: Path) -> None:
        inner, outer = free_ports(2)
        self.far = f"{LOOPBACK}:{outer}"
        self.wire = Wire(outer, inner)
        super().__init__(directory, {"FAR": ("PLAINTEXT", f"{LOOPBACK}:{inner}", self.far)})

    def __enter__(self) -> Self:
        self.wire.__enter__()
        try:
            return super().__enter__()
        except BaseException:
            self.wire.__exit__(None, None, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self.wire.__exit__(kind, error, trace)
