"""The settings in which a job has to agree with the running cluster into which it is submitted. Pure.

A cluster's containers have the size, the Python and the hosts that the job which started the cluster asked for. Jobs
that are submitted later run in such containers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from standby.config import JobConfig, keys, names, parse, written
from standby.errors import BadConfiguration

#: Keys that apply to the cluster's processes, whichever job they serve.
OF_THE_CLUSTER: Final = names("cluster")


def cluster_settings(config: JobConfig) -> dict[str, str]:
    """Return the settings of a job that apply to the cluster it starts: key → value, as text."""
    fields = {key.name: field.name for key, field in keys()}
    return {name: written(getattr(config, fields[name])) for name in OF_THE_CLUSTER}


def check_joins(cluster: str, settings: Mapping[str, str], flat: Mapping[str, str]) -> None:
    """Raise `BadConfiguration` naming each key that a job sets to another value than the running cluster has.

    ``settings`` come from `cluster_settings` when the cluster was started, ``flat`` is what the job sets. Keys that the
    job leaves out it takes from the cluster, and its other keys have to be valid with them.
    """
    asked = cluster_settings(parse(flat))
    wrong = [
        f"{name}: {asked[name] or '(nothing)'}, and the cluster has {settings[name] or '(nothing)'}"
        for name in OF_THE_CLUSTER
        if name in flat and name in settings and asked[name] != settings[name]
    ]
    if wrong:
        lines = "\n  ".join(wrong)
        raise BadConfiguration(
            f"cluster {cluster} runs already, and these keys of its containers are fixed; leave them out, or give "
            f"the job its own cluster (cluster.name):\n  {lines}"
        )
    taken = {name: settings[name] for name in OF_THE_CLUSTER if name in settings}
    try:
        parse({**flat, **taken})
    except BadConfiguration as error:
        raise BadConfiguration(
            f"cluster {cluster} runs already, and with the settings that the job takes over from it: {error}"
        ) from error


def check_restores(
    cluster: str, settings: Mapping[str, str], config: JobConfig, names: Iterable[str]
) -> None:
    """Raise `BadConfiguration` for each of the keys ``names`` that differs between a running cluster and ``config``.

    ``settings`` come from `cluster_settings` when the cluster was started: its cells are restored with them.
    """
    asked = cluster_settings(config)
    wrong = [
        f"{name}: {asked[name] or '(nothing)'}, and the cluster has {settings[name] or '(nothing)'}"
        for name in dict.fromkeys(names)
        if name in asked and name in settings and asked[name] != settings[name]
    ]
    if wrong:
        lines = "\n  ".join(wrong)
        raise BadConfiguration(
            f"cluster {cluster} runs, and its cells are restored as it was started; leave these keys out:\n  {lines}"
        )
