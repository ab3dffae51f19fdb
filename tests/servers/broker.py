"""A separate Kafka broker without a cluster, with configurable listeners."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from embedded import probes
from embedded.machine.ports import free_ports
from embedded.servers import KAFKA, LOOPBACK
from tests.patience import PATIENCE_SECONDS
from tests.servers.own import OwnServer, own_blueprint


class OwnBroker(OwnServer):
    """One broker; beside the port without TLS, ``plain``, it listens where ``listeners`` say."""

    def __init__(
        self,
        directory: Path,
        listeners: dict[str, tuple[str, str, str]],
        further: str = "",
        java_options: str = "",
    ) -> None:
        """``listeners``: name → protocol, address, and the advertised address.

        ``further`` are lines of the broker's configuration, ``java_options`` more of its JVM's.
        """
        plain, controller = free_ports(2)
        self.plain = f"{LOOPBACK}:{plain}"
        own = {"BROKER": ("PLAINTEXT", self.plain, self.plain)} | listeners
        binds = [f"{name}://{address}" for name, (_, address, _) in own.items()]
        tells = [f"{name}://{address}" for name, (_, _, address) in own.items()]
        protocols = [f"{name}:{protocol}" for name, (protocol, _, _) in own.items()]
        blueprint = own_blueprint(
            directory, "kafka", {f"{KAFKA}.broker": plain, f"{KAFKA}.controller": controller}
        )
        launch = blueprint.kafka(
            further=f"""
listeners={",".join(binds)},CONTROLLER://{LOOPBACK}:{controller}
advertised.listeners={",".join(tells)}
listener.security.protocol.map={",".join(protocols)},CONTROLLER:PLAINTEXT
{further}"""
        )
        launch = replace(launch, environment={**launch.environment, "JDK_JAVA_OPTIONS": java_options})
        super().__init__("the broker", launch, directory / "kafka.log", PATIENCE_SECONDS)

    def await_service(self, patience: probes.Patience) -> None:
        """Return when it serves."""
        probes.kafka(self.plain, patience)
