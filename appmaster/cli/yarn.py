"""YARN as an edge node sees it: one Skein driver, and errors that name what is missing."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from standby.errors import BadConfiguration, Unavailable


def hadoop_conf(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the Hadoop configuration directory; raises `BadConfiguration` with the remedy when there is none."""
    value = environment.get("HADOOP_CONF_DIR")
    if not value:
        raise BadConfiguration(
            "HADOOP_CONF_DIR is not set: point it to the directory with yarn-site.xml, "
            'or for the embedded cluster run: eval "$(standfast local env)"'
        )
    directory = Path(value)
    if not (directory / "yarn-site.xml").is_file():
        raise BadConfiguration(f"HADOOP_CONF_DIR={value}: there is no yarn-site.xml")
    return directory


@contextmanager
def skein_client() -> Iterator[Any]:
    """Yield a Skein client with a driver of its own; raises `Unavailable` naming what is missing."""
    hadoop_conf()
    for tool, why in (
        ("java", "Skein's driver is a Java program"),
        ("yarn", "Skein asks it for the class path"),
    ):
        if shutil.which(tool) is None:
            raise Unavailable(f"no `{tool}` on PATH; {why}")
    import skein
    from skein.exceptions import SkeinError

    # The driver logs a page of Hadoop's own before anything happens; it is shown when it matters.
    with tempfile.NamedTemporaryFile(prefix="standfast-skein-", suffix=".log") as log:
        try:
            client = skein.Client(
                security=_credentials(),
                java_options="-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData",
                log=log.name,
            )
        except SkeinError as error:
            raise Unavailable(f"Skein's driver does not start: {error}\n{_tail(log.name)}") from error
        try:
            yield client
        except SkeinError as error:
            raise Unavailable(f"YARN refused: {error}\n{_tail(log.name)}") from error
        finally:
            client.close()


def _credentials() -> Any:
    """Return this user's Skein credentials, made at the first use: everything of a cluster trusts them."""
    import skein

    directory = Path(skein.properties.config_dir)
    # The key is written last. Who comes second finds both: Skein holds a lock while it writes.
    if not (directory / "skein.pem").exists():
        with suppress(FileExistsError):
            skein.Security.new_credentials().to_directory(str(directory))
    return skein.Security.from_directory(str(directory))


def _tail(path: str) -> str:
    lines = Path(path).read_text(errors="replace").splitlines()
    return "\n".join(f"  {each}" for each in lines[-8:])


def is_running(client: Any, application: str) -> bool:
    """Return whether YARN has the application and it has not ended."""
    from skein.exceptions import SkeinError

    if not application:
        return False
    try:
        state = str(client.application_report(application).state)
    except SkeinError:
        return False
    return state not in ("FINISHED", "FAILED", "KILLED")
