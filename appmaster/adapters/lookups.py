"""Asks containers for keys of their state, over HTTP with mutual TLS."""

from __future__ import annotations

import http.client
import json
import urllib.parse
from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final

from standby.adapters.peers.connection import PeerConnection
from standby.adapters.tls import TlsCredentials
from standby.errors import BadConfiguration, Transient
from standby.shared.peers import STATE_ROUTE, PeerAddress
from standby.shared.roles import PeerRole

_SECONDS: Final = 3.0


class StateClient:
    """Asks any number of containers, from any thread."""

    def __init__(self, keys: TlsCredentials) -> None:
        self._keys = keys

    def look_up(self, address: PeerAddress, job: str, store: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Return a container's answer (docs/state.md).

        Raises `Transient` if it does not answer, `BadConfiguration` if it rejects the question.
        """
        path = "/".join(
            ("", STATE_ROUTE, urllib.parse.quote(job, safe=""), urllib.parse.quote(store, safe=""))
        )
        peer = f"{address.container} at {address.host}:{address.port}"
        # One connection per question, because several threads ask.
        made = PeerConnection(self._keys.client_context, PeerRole.CONTAINER, _SECONDS)
        with closing(made), made.to(peer, address.host, address.port) as connection:
            connection.request("GET", f"{path}?{urllib.parse.urlencode(query)}")
            response = connection.getresponse()
            body = response.read()
        if response.status == http.client.OK:
            answer: dict[str, Any] = json.loads(body)
            return answer
        said = f"{peer}: {response.status} {body.decode(errors='replace').strip()}"
        if response.status in (http.client.BAD_REQUEST, http.client.NOT_FOUND):
            raise BadConfiguration(said)
        raise Transient(said)
