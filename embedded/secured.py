"""A Kafka broker of its own that wants TLS and a password, for tests of settings that reach every client."""

from __future__ import annotations

from pathlib import Path

from embedded.broker import OwnBroker
from embedded.ports import free_ports
from embedded.servers import LOOPBACK


class SecuredBroker(OwnBroker):
    """One broker; ``pair`` is a file with its private key (PKCS #8) and its certificate, in PEM.

    The port without TLS is for the broker itself, and for preparing topics.
    """

    def __init__(self, directory: Path, pair: Path, user: str, password: str) -> None:
        (secured,) = free_ports(1)
        self.bootstrap = f"{LOOPBACK}:{secured}"
        login = "org.apache.kafka.common.security.plain.PlainLoginModule"
        super().__init__(
            directory,
            {"SECURED": ("SASL_SSL", self.bootstrap, self.bootstrap)},
            f"""\
listener.name.secured.sasl.enabled.mechanisms=PLAIN
listener.name.secured.plain.sasl.jaas.config={login} required user_{user}="{password}";
listener.name.secured.ssl.keystore.type=PEM
listener.name.secured.ssl.keystore.location={pair}
""",
        )
