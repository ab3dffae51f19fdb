"""A client of a running cluster: finds its leader in ZooKeeper, asks it over mutual TLS."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import grpc

from appmaster.adapters.grpc import CALL
from appmaster.adapters.kazoo import ZooKeeper
from standby import wire
from standby.errors import BadConfiguration, StandfastError, Unavailable


def skein_directory() -> Path:
    """Return where Skein keeps this user's credentials: ``$SKEIN_CONFIG``, else ``~/.skein``."""
    return Path(os.environ.get("SKEIN_CONFIG") or Path.home() / ".skein")


class ClusterClient:
    """Asks a cluster's leader; finds it again by itself after a change of leader."""

    def __init__(self, cluster: str, zookeeper: str, skein_config: Path | None = None) -> None:
        self._cluster = cluster
        directory = skein_config or skein_directory()
        try:
            certificate = (directory / "skein.crt").read_bytes()
            key = (directory / "skein.pem").read_bytes()
        except OSError as error:
            raise BadConfiguration(
                f"{directory}: the credentials skein.crt and skein.pem cannot be read ({error.strerror}); "
                "set SKEIN_CONFIG to the directory that the submit used"
            ) from error
        self._credentials = grpc.ssl_channel_credentials(certificate, key, certificate)
        self._zookeeper = ZooKeeper(zookeeper, cluster)
        self._is_connected = False
        self._channel: grpc.Channel | None = None
        self._address = ""

    def __enter__(self) -> ClusterClient:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what is open."""
        if self._channel is not None:
            self._channel.close()
        if self._is_connected:
            self._zookeeper.close()

    @property
    def zookeeper(self) -> ZooKeeper:
        """The client's session with ZooKeeper, opened at the first use."""
        if not self._is_connected:
            self._zookeeper.connect()
            self._is_connected = True
        return self._zookeeper

    def status(self) -> dict[str, Any]:
        """Return the leader's snapshot (`appmaster.snapshot`); raises `Unavailable` when none leads."""
        return self.call("status")

    def call(self, operation: str, timeout_seconds: float = 5.0, **arguments: Any) -> dict[str, Any]:
        """Return the leader's answer to ``operation``.

        Raises `Unavailable` when no leader can be reached, `StandfastError` with the leader's own error.
        """
        answer = self._ask({"operation": operation, **arguments}, timeout_seconds)
        if "error" in answer:
            error = StandfastError(answer["error"])
            error.exit_status = int(answer.get("status", 1))
            raise error
        return answer

    def _ask(self, question: dict[str, Any], timeout_seconds: float) -> dict[str, Any]:
        failure: grpc.RpcError | None = None
        # Twice: the first address may be of a leader that is no more.
        for is_fresh in (False, True):
            if is_fresh or self._channel is None:
                self._find()
            assert self._channel is not None
            ask = self._channel.unary_unary(CALL, None, None)
            try:
                answer: dict[str, Any] = json.loads(
                    ask(json.dumps(question).encode(), timeout=timeout_seconds, wait_for_ready=False)
                )
                return answer
            except grpc.RpcError as error:
                failure = error
        assert failure is not None
        raise Unavailable(
            f"the leader of cluster {self._cluster} at {self._address} does not answer: {failure.code().name}"
        ) from failure

    def _find(self) -> None:
        leader = self.zookeeper.controller()
        if leader is None:
            raise Unavailable(f"cluster {self._cluster} has no leader now")
        if self._channel is not None:
            self._channel.close()
        self._address = f"{leader.host}:{leader.port}"
        options = [
            ("grpc.ssl_target_name_override", wire.CERTIFICATE_NAME),
            ("grpc.default_authority", wire.CERTIFICATE_NAME),
            ("grpc.enable_http_proxy", 0),
        ]
        self._channel = grpc.secure_channel(self._address, self._credentials, options)
