"""How a process withdraws its registration in ZooKeeper when it ends."""

from __future__ import annotations

import logging
import threading
from typing import Final

from kazoo.client import KazooClient

from standby.adapters.zookeeper.reader import translated
from standby.shared.errortext import summary_of

_log: Final = logging.getLogger(__name__)


def leave(client: KazooClient, path: str, timeout_seconds: float) -> None:
    """Remove a registration, and close the session, which would remove it, too; takes no longer than the time-out.

    ZooKeeper may not answer, because it ends with the host; kazoo then takes more than 10 s to close, and raises.
    """

    def work() -> None:
        try:
            try:
                with translated(path):
                    client.delete_async(path).get(timeout=timeout_seconds)
            finally:
                client.stop()
        except Exception as error:  # noqa: BLE001 - whatever it is, the process ends, and the session with it
            _log.info("its registration is left to the end of its session: %s", summary_of(error))

    leaving = threading.Thread(target=work, name="leave", daemon=True)
    leaving.start()
    leaving.join(timeout_seconds)
