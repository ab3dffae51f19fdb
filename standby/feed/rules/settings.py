"""Settings of the Spark session. Pure, except for secrets read from the host's files."""

from __future__ import annotations

import shlex
from typing import Final

from standby.config import JobConfig
from standby.errors import BadConfiguration
from standby.security.secret_files import resolved

#: The session's settings; a job may change them.
SESSION: Final = {
    "spark.driver.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # A shuffle into more parts, or a second plan, would only add latency.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "standby.adapters.spark.daemon",
    # The driver listens on loopback; a secret created by Spark excludes other users of the host.
    "spark.authenticate": "true",
    # The same timestamps as the plain feed, on every host.
    "spark.sql.session.timeZone": "UTC",
    # A container runs for months; the history of its Spark jobs is not used.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "20",
}

#: Settings that would break the feed's guarantees, with the reason.
REFUSED: Final = {
    "spark.jars.packages": "containers resolve nothing; give files with spark.jars",
    "spark.submit.pyFiles": "list the files in job.modules",
    "spark.files": "list the files in job.modules",
    "spark.archives": "use job.python.archive",
    "spark.remote": "the session is local to its container",
    "spark.app.name": "it is the job's name",
    "spark.driver.host": "the session is local to its container",
    "spark.driver.bindAddress": "the session is local to its container",
    "spark.sql.execution.arrow.useLargeVarTypes": "rows have the same types with each feed",
}

_JVM_FLAGS: Final = "spark.driver.extraJavaOptions"


def session_settings(config: JobConfig, python_path: str = "", scratch: str = "") -> dict[str, str]:
    """Return all settings of the job's Spark session.

    ``python_path`` is where Spark's Python workers find the job's modules (empty: nowhere), ``scratch`` where Spark
    and its JVM may keep files (empty: the system's default). Raises `BadConfiguration` for a setting that is not
    allowed.
    """
    for name, reason in REFUSED.items():
        if name in config.spark:
            raise BadConfiguration(f"{name}: cannot be set: {reason}")
    master = config.spark.get("spark.master", "local")
    if not master.startswith("local"):
        raise BadConfiguration(
            f"spark.master: {master!r} is not local; each container runs a session of its own"
        )
    given = resolved(config.spark)
    try:
        shlex.split(given.get(_JVM_FLAGS, ""))
    except ValueError as error:
        # Without the value, which may be a secret.
        raise BadConfiguration(f"{_JVM_FLAGS}: the JVM's flags, as in a shell: {error}") from error
    settings = {
        "spark.master": f"local[{max(2, config.vcores)}]",
        **SESSION,
        **given,
        "spark.app.name": config.job_name,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    if scratch:
        settings.setdefault("spark.local.dir", scratch)
        # A JVM that is killed leaves its unpacked libraries and other files behind. The job's own flag comes later
        # and wins.
        flags = shlex.join([f"-Djava.io.tmpdir={scratch}"])
        own = settings.get(_JVM_FLAGS)
        settings[_JVM_FLAGS] = f"{flags} {own}" if own else flags
    if python_path:
        own = settings.get("spark.executorEnv.PYTHONPATH")
        settings["spark.executorEnv.PYTHONPATH"] = f"{python_path}:{own}" if own else python_path
    return settings
