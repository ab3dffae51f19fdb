"""A job file and the command line's settings, as one checked configuration."""

from __future__ import annotations

import argparse
import filecmp
import os
import pwd
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import yaml

from appmaster.cli.shared import yamltext
from appmaster.cli.shared.parsers import cluster_name
from standby import ensemble
from standby.code.bundles import checksum
from standby.config import JobConfig, flatten, in_one_form, is_harmless, is_text, parse
from standby.config.keys import MOST_CONTAINERS
from standby.errors import BadConfiguration
from standby.security.disclosure import is_secret
from standby.shared import naming

#: Keys with values from the environment if neither file nor command line sets them.
FROM_ENVIRONMENT = {
    "kafka.bootstrap.servers": "STANDFAST_KAFKA",
    "zookeeper.connect": "STANDFAST_ZOOKEEPER",
    **ensemble.KEYS,
}


#: The same for the directories of state, which a running job keeps.
_STATE_DIRECTORY: Final = "STANDFAST_STATE_DIR"

_ARCHIVE: Final = "job.python.archive"

#: Keys with other defaults on a pool.
OF_POOL: Final = frozenset({"job.hotstandby.mixed", "job.container.count"})


@dataclass(frozen=True, slots=True)
class JobFile:
    """A job as its author wrote it."""

    path: Path
    flat: Mapping[str, str]
    config: JobConfig
    """As `flat` says, with the absolute path of the job's packed environment."""
    assumed: frozenset[str] = frozenset()
    """Keys that neither the file nor the command line sets: a running job keeps its own values of them."""

    def on_pool(self, processes: int, present: Mapping[str, str]) -> JobFile:
        """Return the job with the defaults of a pool: its containers are mixed, and there are ``processes`` of them.

        A present run of the job keeps its values. Neither default holds for a job that sets one of the keys, whose
        failover is not by promotion, or that has no standbys.
        """
        config = self.config
        if OF_POOL & self.flat.keys() or config.failover != "promote" or not config.standbys:
            return self
        count = min(max(1 + config.standbys, processes), MOST_CONTAINERS)
        assumed = {"job.hotstandby.mixed": "true", "job.container.count": str(count)}
        flat = {**self.flat, **assumed, **{key: present[key] for key in OF_POOL if key in present}}
        return JobFile(self.path, flat, _located(self.path, parse(flat)), self.assumed | OF_POOL)

    def keeping(self, present: Mapping[str, str], *, is_on_pool: bool = False) -> JobFile:
        """Return the job with the running job's values of the assumed keys."""
        of_pool = OF_POOL if is_on_pool and not OF_POOL & self.flat.keys() else frozenset()
        known = {key: present[key] for key in self.assumed | of_pool if key in present}
        flat = {**self.given, **known}
        # What is given is checked already (`load`), and what is kept may be more than a new job may have.
        return JobFile(self.path, flat, _located(self.path, parse(flat)))

    def joining(self, settings: Mapping[str, str], shipped: Collection[str]) -> Mapping[str, str]:
        """Return what is given, as it compares with the ``settings`` of the cluster that the job joins.

        Its packed environment may lie elsewhere than the one that the cluster was started with, if it is the same.
        ``shipped``: `appmaster.records.recorded_environments`.
        """
        mine, of_cluster = self.config.python_archive, settings.get(_ARCHIVE, "")
        # Earlier versions recorded it as it was given.
        is_same = of_cluster in (mine, self.flat.get(_ARCHIVE)) or (
            environment_digest(mine) in shipped if shipped else _have_same_content(mine, of_cluster)
        )
        return {**self.given, _ARCHIVE: of_cluster if is_same else mine} if mine else self.given

    def restoring(self, settings: Mapping[str, str], shipped: Collection[str]) -> Mapping[str, str]:
        """Return the cluster's ``settings``, with this file's packed environment if the recorded one is not here.

        ``shipped``: `appmaster.records.recorded_environments`; a file with that content comes before one with another.
        """
        mine, recorded = self.config.python_archive, settings.get(_ARCHIVE, "")
        if not mine or not recorded:
            return settings
        present = [each for each in dict.fromkeys((recorded, mine)) if Path(each).is_file()]
        same = (each for each in present if shipped and environment_digest(each) in shipped)
        return {**settings, _ARCHIVE: next(same, present[0] if present else mine)}

    @property
    def given(self) -> Mapping[str, str]:
        """What the file, the command line or the environment sets."""
        return {key: value for key, value in self.flat.items() if key not in self.assumed}

    @property
    def directory(self) -> Path:
        """Return the directory to which the job's paths are relative."""
        return self.path.resolve().parent


def add_settings(parser: argparse.ArgumentParser, of_what: str = "the file") -> None:
    """Add ``--set``, which every command with a job file has."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help=f"set a key on top of {of_what}",
    )


def add_job_file(parser: argparse.ArgumentParser, text: str) -> None:
    """Add a job file as the argument, and the settings on top of it."""
    parser.add_argument("job", type=Path, metavar="JOB.YAML", help=text)
    add_settings(parser)
    parser.add_argument(
        "--cluster",
        metavar="NAME",
        type=cluster_name,
        help="the cluster's name, as --set cluster.name=NAME; a file that names another is refused",
    )


def load(
    path: Path,
    settings: Sequence[str],
    environment: Mapping[str, str] = os.environ,
    cluster: str | None = None,
    *,
    is_new: bool = True,
) -> JobFile:
    """Return the job in ``path`` with each ``key=value`` of ``settings`` set on top, as a job of ``cluster``.

    ``is_new``: whether numbers may not be above the most allowed; see `standby.config.parse`.

    Raises `BadConfiguration` naming the file, line, key or value that is wrong, or the other cluster that it names.
    """
    flat = {**flatten(_yaml(path)), **settings_of(settings)}
    variables = add_from_environment(flat, environment)
    flat = in_one_form(flat)
    if cluster:
        named = flat.setdefault("cluster.name", cluster)
        if named != cluster:
            raise BadConfiguration(
                f"{path}: cluster.name is {named or '(nothing)'}, and the command is about cluster {cluster}; correct "
                "--cluster, or give this cluster's file"
            )
    config, assumed = parse_named(flat, variables, is_new=is_new), dict[str, str]()
    if "job.state.dir" not in flat:
        named = environment.get(_STATE_DIRECTORY, "")
        assumed["job.state.dir"] = named or own_state_directory()
        variables |= {"job.state.dir": _STATE_DIRECTORY} if named else {}
    if not config.python and not config.python_archive:
        # The same path on every host, as on a single machine, or with shared environments.
        assumed["job.python"] = sys.executable
    flat |= assumed
    return JobFile(
        path, flat, _located(path, parse_named(flat, variables, is_new=is_new)), frozenset(assumed)
    )


def _located(path: Path, config: JobConfig) -> JobConfig:
    """Return the configuration of the job file at ``path`` with the place of its packed environment, if it has one.

    The cluster is recorded with this. The job is recorded with what the file says: an update may come from a copy of
    the file in another directory.
    """
    if not config.python_archive:
        return config
    return replace(config, python_archive=str(path.resolve().parent / config.python_archive))


def environment_digest(archive: str) -> str:
    """Return the SHA-256 of a packed environment, hexadecimal; empty if there is none, or none that is here."""
    try:
        return checksum(Path(archive)) if archive else ""
    except OSError:
        return ""


def _have_same_content(one: str, other: str) -> bool:
    try:
        return filecmp.cmp(one, other, shallow=False)
    except OSError:
        return False


def add_from_environment(flat: dict[str, str], environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Add the servers that the environment names to ``flat``, and return key → variable of what was added."""
    variables = {
        key: variable
        for key, variable in FROM_ENVIRONMENT.items()
        if key not in flat and environment.get(variable)
    }
    flat |= {key: environment[variable].strip() for key, variable in variables.items()}
    return variables


def parse_named(flat: Mapping[str, str], variables: Mapping[str, str], *, is_new: bool = True) -> JobConfig:
    """Return the same as `parse`; an error about a key also names the variable in which its value is."""
    try:
        return parse(flat, is_new=is_new)
    except BadConfiguration as error:
        named = [f"{key} is from ${variable}" for key, variable in variables.items() if key in str(error)]
        if not named:
            raise
        raise BadConfiguration("\n  ".join((str(error), *named))) from error


def settings_of(settings: Sequence[str]) -> dict[str, str]:
    """Return the keys and values of ``--set``; raises `BadConfiguration` for one that cannot be given so."""
    flat: dict[str, str] = {}
    for each in settings:
        name, equals, value = each.partition("=")
        if not equals or not name.strip():
            raise BadConfiguration(f"--set {each}: not of the form key=value")
        _refuse_secret(name.strip(), value)
        flat[name.strip()] = value
    return flat


def _refuse_secret(name: str, value: str) -> None:
    """Raise `BadConfiguration` for a setting on the command line that is not known to be harmless there."""
    if not name.startswith(("kafka.", "spark.")):
        return
    if is_secret(name):
        raise BadConfiguration(
            f"--set {name}: everybody on this machine can read a command's arguments; write it into the job file, or "
            f"its value into a file that {name}.file names"
        )
    if not is_harmless(name, value):
        raise BadConfiguration(
            f"--set {name}: everybody on this machine can read a command's arguments, and this value may be a secret "
            "as far as is known; write it into the job file"
        )


def own_state_directory() -> str:
    """Return the default directory of state: one per user, since only its creator may write to it."""
    user = os.getuid()
    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:
        name = ""
    # For a user known by number only, as in a container, or by a name that is not a plain path component.
    return f"/var/tmp/standfast-{name if naming.NAME.match(name) else user}"  # noqa: S108 - owners are checked


def _yaml(path: Path) -> dict[str, Any]:
    try:
        content = yamltext.read(path.read_text(encoding="utf-8"), is_text)
    except OSError as error:
        raise BadConfiguration(f"{path}: the job file cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadConfiguration(f"{path}: the job file is not UTF-8 text") from error
    except BadConfiguration as error:
        raise BadConfiguration(f"{path}: {error}") from error
    except yaml.YAMLError as error:
        raise BadConfiguration(f"{path}: not YAML: {yamltext.reason_of(error)}") from error
    if not isinstance(content, dict):
        raise BadConfiguration(f"{path}: a job file is a mapping of keys to values")
    return content
