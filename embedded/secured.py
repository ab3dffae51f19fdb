"""A Kafka broker of its own that lets in who proves who it is, and do what it was given a right to. For tests."""

from __future__ import annotations

from pathlib import Path

from embedded.broker import OwnBroker
from embedded.ports import free_ports
from embedded.servers import LOOPBACK

_SECURITY = "org.apache.kafka.common.security"


class SecuredBroker(OwnBroker):
    """One broker; ``pair`` is a file with its private key (PKCS #8) and its certificate, in PEM.

    ``bootstrap`` wants TLS and a password, by PLAIN or by SCRAM-SHA-512; ``mutual`` wants a certificate that
    ``authority`` signed. Who comes to either may do what an ACL allows. The port without TLS is for the broker
    itself, and for preparing topics, ACLs and SCRAM's users: there everything is allowed.
    """

    def __init__(self, directory: Path, pair: Path, authority: Path, user: str, password: str) -> None:
        """``user`` and ``password`` are those of PLAIN."""
        secured, mutual = free_ports(2)
        self.bootstrap, self.mutual = f"{LOOPBACK}:{secured}", f"{LOOPBACK}:{mutual}"
        own = "\n".join(
            f"""\
listener.name.{listener}.ssl.keystore.type=PEM
listener.name.{listener}.ssl.keystore.location={pair}"""
            for listener in ("secured", "mutual")
        )
        super().__init__(
            directory,
            {
                "SECURED": ("SASL_SSL", self.bootstrap, self.bootstrap),
                "MUTUAL": ("SSL", self.mutual, self.mutual),
            },
            f"""\
{own}
listener.name.secured.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.secured.plain.sasl.jaas.config={_SECURITY}.plain.PlainLoginModule required user_{user}="{password}";
listener.name.secured.scram-sha-512.sasl.jaas.config={_SECURITY}.scram.ScramLoginModule required;
listener.name.mutual.ssl.client.auth=required
listener.name.mutual.ssl.truststore.type=PEM
listener.name.mutual.ssl.truststore.location={authority}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
""",
        )
