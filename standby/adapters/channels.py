"""The only place where gRPC channels are created: to hosts of the cluster and to this machine, without a proxy.

By default, grpcio uses ``grpc_proxy``, ``https_proxy`` and ``http_proxy`` of the environment for every channel.
``make lint`` refuses channels that are created elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import grpc

_DIRECT: Final = (("grpc.enable_http_proxy", 0),)


def open_channel(
    address: str, credentials: grpc.ChannelCredentials, options: Sequence[tuple[str, Any]] = ()
) -> grpc.Channel:
    """Return a channel to ``address`` (``host:port``) over TLS; it connects when it is used."""
    return grpc.secure_channel(address, credentials, (*options, *_DIRECT))
