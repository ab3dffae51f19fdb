"""Skein's Python library as this program uses it: with our own build of the jar, and bypassing every proxy.

Skein has no public setting for either, so both are set in its module, for this process only. The release is pinned.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import grpc
import skein.core

from standby.adapters.channels import open_channel
from standby.errors import Unavailable

#: Skein's Java part, built from its source with current libraries (third_party/skein). The driver runs from it, and
#: ships it to YARN as the application master.
SKEIN_JAR: Final = Path(__file__).resolve().parents[1] / "jar" / "skein.jar"

#: The name that Skein's certificates are made for, on every host.
_NAME: Final = "skein-internal"


def load_skein() -> Any:
    """Return the module `skein`, which from then on uses `SKEIN_JAR` instead of its own jar.

    Raises `Unavailable` if that is missing.
    """
    if not SKEIN_JAR.is_file():
        raise Unavailable(f"{SKEIN_JAR} is missing: install standfast again")
    skein.core._SKEIN_JAR = str(SKEIN_JAR)  # noqa: SLF001
    return skein


def _channel(address: str, security: Any) -> grpc.Channel:
    """Return a channel like Skein's to its driver and its masters, but a direct one, bypassing proxies."""
    certificate, key = security._get_bytes("cert"), security._get_bytes("key")  # noqa: SLF001
    credentials = grpc.ssl_channel_credentials(certificate, key, certificate)
    options = (("grpc.ssl_target_name_override", _NAME), ("grpc.default_authority", _NAME))
    return open_channel(address, credentials, options)


# Every client of Skein looks this function up here when it is created.
skein.core.secure_channel = _channel

#: A client of a running application's master.
ApplicationClient: Final = skein.ApplicationClient
