"""A separate Kafka broker and ZooKeeper that require authentication, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from embedded import probes
from embedded.machine.ports import free_ports
from embedded.probes import Patience
from embedded.servers import LOOPBACK, ZOOKEEPER
from tests.servers.broker import OwnBroker
from tests.servers.own import OwnServer, own_blueprint

_SECURITY = "org.apache.kafka.common.security"
_VALIDATOR = f"{_SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler"


class SecuredBroker(OwnBroker):
    """One broker; ``pair`` is a file with its private key (PKCS #8) and its certificate, in PEM.

    ``bootstrap`` wants TLS and a password, by PLAIN or by SCRAM-SHA-512; ``mutual`` wants a certificate that
    ``authority`` signed; ``tokens``, if there are any, wants TLS and a token, by OAUTHBEARER, and ends a connection
    that shows no new one when it expires. A client of any of them may do what an ACL allows. The port without TLS
    is for the broker itself, and for preparing topics, ACLs and SCRAM's users: there everything is allowed.
    """

    def __init__(
        self,
        directory: Path,
        pair: Path,
        authority: Path,
        logins: Mapping[str, str],
        signed: tuple[str, str] | None = None,
    ) -> None:
        """``logins``: PLAIN's users with their passwords; ``signed``: where keys of tokens are, and their audience."""
        users = " ".join(f'user_{user}="{password}"' for user, password in logins.items())
        secured, mutual, tokens = (f"{LOOPBACK}:{each}" for each in free_ports(3))
        self.bootstrap, self.mutual, self.tokens = secured, mutual, tokens
        listeners = {"secured": ("SASL_SSL", secured), "mutual": ("SSL", mutual)}
        if signed is not None:
            listeners["tokens"] = ("SASL_SSL", tokens)
        own = "\n".join(
            f"""\
listener.name.{listener}.ssl.keystore.type=PEM
listener.name.{listener}.ssl.keystore.location={pair}"""
            for listener in listeners
        )
        super().__init__(
            directory,
            {name.upper(): (protocol, at, at) for name, (protocol, at) in listeners.items()},
            f"""\
{own}
listener.name.secured.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.secured.plain.sasl.jaas.config={_SECURITY}.plain.PlainLoginModule required {users};
listener.name.secured.scram-sha-512.sasl.jaas.config={_SECURITY}.scram.ScramLoginModule required;
listener.name.mutual.ssl.client.auth=required
listener.name.mutual.ssl.truststore.type=PEM
listener.name.mutual.ssl.truststore.location={authority}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
{_of_tokens(*signed) if signed else ""}""",
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={signed[0]}" if signed else "",
        )


def _of_tokens(keys_url: str, audience: str) -> str:
    return f"""\
listener.name.tokens.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.tokens.oauthbearer.sasl.jaas.config={_SECURITY}.oauthbearer.OAuthBearerLoginModule required;
listener.name.tokens.oauthbearer.sasl.server.callback.handler.class={_VALIDATOR}
listener.name.tokens.connections.max.reauth.ms=3600000
sasl.oauthbearer.jwks.endpoint.url={keys_url}
sasl.oauthbearer.expected.audience={audience}
"""


class SecuredZooKeeper(OwnServer):
    """One server; ``pair`` is a file with its private key (PKCS #8) and its certificate, in PEM.

    ``connect`` wants TLS, and a certificate that ``authority`` signed. The port without TLS is there to see that
    it serves.
    """

    def __init__(self, directory: Path, pair: Path, authority: Path) -> None:
        plain, secured = free_ports(2)
        self.plain, self.connect = f"{LOOPBACK}:{plain}", f"{LOOPBACK}:{secured}"
        # Netty, which it needs for TLS, comes with Hadoop.
        jars = (ZOOKEEPER, "hadoop")
        launch = own_blueprint(directory, jars, {f"{ZOOKEEPER}.client": plain}).zookeeper(
            jars=jars,
            further=f"""\
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
secureClientPort={secured}
secureClientPortAddress={LOOPBACK}
ssl.keyStore.location={pair}
ssl.keyStore.type=PEM
ssl.trustStore.location={authority}
ssl.trustStore.type=PEM
ssl.clientAuth=need
""",
        )
        super().__init__("ZooKeeper", launch, directory / "zookeeper.log", 60.0)

    def await_service(self, patience: Patience) -> None:
        """Return when it serves."""
        probes.zookeeper(self.plain, patience)
