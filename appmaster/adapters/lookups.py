"""Asks containers for keys of their state, over HTTP with mutual TLS."""

from __future__ import annotations

import http.client
import json
import socket
import urllib.parse
from collections.abc import Mapping
from typing import Any, Final

from standby.adapters.tls import Keys
from standby.errors import BadConfiguration, Transient
from standby.shared.peers import STATE_ROUTE, PeerAddress
from standby.shared.roles import PeerRole

_SECONDS: Final = 3.0


class StateClient:
    """Asks any number of containers, from any thread."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def look_up(self, address: PeerAddress, job: str, store: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Return a container's answer (docs/state.md).

        Raises `Transient` when it does not answer, `BadConfiguration` when it finds fault with the question.
        """
        path = "/".join(
            ("", STATE_ROUTE, urllib.parse.quote(job, safe=""), urllib.parse.quote(store, safe=""))
        )
        who = f"{address.container} at {address.host}:{address.port}"
        connection = http.client.HTTPConnection(address.host, address.port)
        try:
            plain = socket.create_connection((address.host, address.port), timeout=_SECONDS)
            # The certificate is for containers, not for a host.
            connection.sock = self._keys.client_context().wrap_socket(
                plain, server_hostname=PeerRole.CONTAINER.server_name
            )
            connection.request("GET", f"{path}?{urllib.parse.urlencode(query)}")
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise Transient(f"{who}: {type(error).__name__}: {error}") from error
        finally:
            connection.close()
        if response.status == http.client.OK:
            answer: dict[str, Any] = json.loads(body)
            return answer
        said = f"{who}: {response.status} {body.decode(errors='replace').strip()}"
        if response.status in (http.client.BAD_REQUEST, http.client.NOT_FOUND):
            raise BadConfiguration(said)
        raise Transient(said)
