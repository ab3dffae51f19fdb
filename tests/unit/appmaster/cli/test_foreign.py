"""No library's exception ends a command in a traceback: every command, every port, servers that are away or refuse."""

from __future__ import annotations

import argparse
import errno
import http.client
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from confluent_kafka import KafkaError, KafkaException
from kazoo import exceptions as kazoo
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE
from skein import exceptions as skein

from appmaster.cli import main as command_line
from appmaster.cli.main import build_parser, main
from appmaster.cli.shared.output import Progress
from appmaster.cli.shared.undo import Undo
from appmaster.records import CandidateRecord, JobRecord, encode
from standby.shared import naming
from standby.shared.wire import JobDefinition
from tests.fakes.certificates import user_directory

CLUSTER = "cluster"


def commands(parser: argparse.ArgumentParser, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command that the parser has, by its names, with its own parser."""
    rooms = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    if not rooms:
        yield names, parser
    for room in rooms:
        for name, below in room.choices.items():
            yield from commands(below, *names, name)


COMMANDS = dict(commands(build_parser()))

#: What does its work without a server, or with none of them.
ASK_NO_SERVER = (("credentials", "show"), ("credentials", "issue"), ("local", "down"))

#: What is given to arguments for which any text will not do.
VALUES = {"task": "0", "processor": "0", "hosts": "h1", "job": CLUSTER}


def arguments_of(names: tuple[str, ...], directory: Path) -> list[str]:
    """Return a command line with all that the command insists on."""
    line = list(names)
    for each in COMMANDS[names]._actions:
        value = str(next(iter(each.choices))) if each.choices else VALUES.get(each.dest, "x")
        if names[0] in ("submit", "update") and each.dest == "job":
            value = str(directory / "job.yaml")
        if each.dest in ("to", "former"):
            value = str(directory / each.dest)
        if each.option_strings and each.dest == "zookeeper":
            line += ["--zookeeper", "zk:2181"]
        elif each.option_strings and (each.required or each.dest == "timeout"):
            line += [each.option_strings[0], "0.1" if each.dest == "timeout" else value]
        elif not each.option_strings and each.nargs != "?":
            line.append(value)
        if each.dest == "cluster":
            line += ["--cluster", CLUSTER]
    if names[0] in ("handover", "failover"):
        line += ["--container", "c1"]
    return line


#: What a test has met.
raised: list[Exception] = []


class RpcError(grpc.RpcError):
    """As gRPC's own ones: they say what they are by methods."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "nothing\nis there"


ZOOKEEPER = (
    KazooTimeoutError("Connection time-out"),
    kazoo.NoNodeError(),
    kazoo.NoAuthError(),
    kazoo.AuthFailedError(),
    kazoo.ConnectionLoss(),
    kazoo.SessionExpiredError(),
    kazoo.OperationTimeoutError(),
    kazoo.BadVersionError(),
    kazoo.MarshallingError(),
    kazoo.NotReadOnlyCallError(),
)
KAFKA = tuple(
    KafkaException(KafkaError(each))
    for each in (
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._INVALID_ARG,
    )
)
YARN = (
    skein.ConnectionError("Unable to connect to driver"),
    skein.TimeoutError("Unable to connect to driver"),
    skein.DriverError("java.net.ConnectException:\nCall From a to b failed"),
    skein.ApplicationNotRunningError("it has ended"),
    subprocess.CalledProcessError(1, ["yarn", "classpath", "--glob"]),
    FileNotFoundError(errno.ENOENT, "No such file or directory", "yarn"),
)
HTTP = (
    http.client.RemoteDisconnected("Remote end closed connection without response"),
    http.client.BadStatusLine("x"),
    ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),
    TimeoutError("timed out"),
)
GRPC = (RpcError(),)
FOREIGN = (*ZOOKEEPER, *KAFKA, *YARN, *HTTP, *GRPC, OSError(errno.ENOSPC, "No space left on device", "/x"))


class Raising:
    """A library's object whose every method raises; with ``opens`` it can be made and opened before."""

    def __init__(self, error: Exception, *opens: str) -> None:
        self._error = error
        self._opens = opens
        self.chroot, self.refusal, self.is_closing = "", "", False

    def __getattr__(self, name: str) -> Any:
        if name in (*self._opens, "close", "stop", "add_listener"):
            return lambda *_, **__: None

        return raiser(self._error)


class Tree:
    """As much of kazoo's client as reading takes, over a cluster with a job and a candidate."""

    chroot = refusal = ""
    is_closing = False
    # Reading many at once is no part of it: they are read one by one.
    handler = argparse.Namespace(async_result=lambda: Raising(kazoo.UnimplementedError()))

    def __init__(self) -> None:
        settings = {"job.name": CLUSTER, "kafka.bootstrap.servers": "k", "zookeeper.connect": "z:2181"}
        definition = JobDefinition(
            CLUSTER, "r1", {**settings, "task.inputs": "in", "task.step": "m:f"}, "c", "g", 1
        )
        root = naming.cluster_path(CLUSTER)
        record = CandidateRecord("c1", "127.0.0.1", 1, 1, 1, 1, "container", 0, "1")
        self.nodes = {
            naming.job_path(CLUSTER, CLUSTER): encode(JobRecord(definition)),
            naming.controller_epoch_path(CLUSTER): b"1",
            f"{root}/candidates/c1": encode(record),
            **{
                f"{root}/{each}": b""
                for each in ("jobs", "candidates", "containers", "cells", "changes", "code")
            },
            root: b"",
            naming.ROOT: b"",
        }

    def __getattr__(self, name: str) -> Any:
        """Do nothing: what is not read has no part in what is tried."""
        same = name.removesuffix("_async")
        if same != name and same in ("exists", "get", "get_children"):
            read = getattr(self, same)
            return lambda *given, **_: argparse.Namespace(get=lambda timeout=None: read(*given))
        return lambda *_, **__: argparse.Namespace(get=lambda timeout=None: None)

    def exists(self, path: str, watch: Any = None) -> Any:
        return self._stat() if path in self.nodes else None

    def get(self, path: str, watch: Any = None) -> Any:
        if path not in self.nodes:
            raise kazoo.NoNodeError
        return self.nodes[path], self._stat()

    def get_children(self, path: str, watch: Any = None) -> list[str]:
        if path not in self.nodes:
            raise kazoo.NoNodeError
        below = (each.removeprefix(f"{path}/") for each in self.nodes if each.startswith(f"{path}/"))
        return sorted(each for each in below if "/" not in each)

    def get_acls(self, path: str) -> Any:
        return OPEN_ACL_UNSAFE, self._stat()

    @staticmethod
    def _stat() -> ZnodeStat:
        return ZnodeStat(*[0] * 11)


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with all that commands need, of somebody who has submitted the cluster before."""
    (tmp_path / "to").mkdir()
    user_directory(tmp_path / "former", "x")
    monkeypatch.setenv("STANDFAST_CREDENTIALS", str(user_directory(tmp_path / "credentials", CLUSTER)))
    monkeypatch.setenv("STANDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    (tmp_path / "yarn-site.xml").write_text("<configuration/>", encoding="utf-8")
    (tmp_path / "job.yaml").write_text(
        f"job: {{name: {CLUSTER}, modules: [steps.py]}}\n"
        "task: {inputs: [in], outputs: [out], step: steps:step, feed: plain}\n"
        "kafka.bootstrap.servers: k:1\nzookeeper.connect: z:2181\n",
        encoding="utf-8",
    )
    (tmp_path / "steps.py").write_text("def step(rows, state, out):\n    pass\n", encoding="utf-8")
    for tool in ("java", "yarn"):
        command = tmp_path / "bin" / tool
        command.parent.mkdir(exist_ok=True)
        command.write_text(f"#!/bin/sh\necho '{tmp_path}'\n", encoding="utf-8")
        command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    for each in ("zookeeper", "kafka", "yarn", "candidates", "http"):
        PORTS[each](monkeypatch, AWAY[each])
    # No servers are started here.
    monkeypatch.setattr(
        "embedded.cluster.LocalCluster.start", raiser(OSError(errno.ENOSPC, "No space left", "/x"))
    )
    return tmp_path


def raiser(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raised.append(error)
        raise error

    return fail


def _zookeeper(patch: pytest.MonkeyPatch, error: Exception) -> None:
    opens = () if isinstance(error, KazooTimeoutError) else ("start",)
    patch.setattr("appmaster.adapters.zookeeper.session.make_client", lambda *_: Raising(error, *opens))


def _kafka(patch: pytest.MonkeyPatch, error: Exception) -> None:
    patch.setattr("standby.adapters.kafka.clients.ClientKind.make", lambda *_, **__: Raising(error))


def _yarn(patch: pytest.MonkeyPatch, error: Exception) -> None:
    library = argparse.Namespace(Client=lambda **_: Raising(error))
    patch.setattr("appmaster.adapters.skein_library.load_skein", lambda: library)


def _candidates(patch: pytest.MonkeyPatch, error: Exception) -> None:
    channel = argparse.Namespace(unary_unary=lambda *_: raiser(error), close=lambda: None)
    patch.setattr("appmaster.api.client.open_channel", lambda *_, **__: channel)


def _http(patch: pytest.MonkeyPatch, error: Exception) -> None:
    patch.setattr("http.client.HTTPConnection.request", raiser(error))


PORTS = {"zookeeper": _zookeeper, "kafka": _kafka, "yarn": _yarn, "candidates": _candidates, "http": _http}
AWAY: dict[str, Exception] = {
    "zookeeper": ZOOKEEPER[0],
    "kafka": KAFKA[0],
    "yarn": YARN[0],
    "candidates": GRPC[0],
    "http": HTTP[2],
}
#: One of each library, and of ZooKeeper also a refusal; `FOREIGN` has all.
RAISED = {
    "a node is missing": ("zookeeper", ZOOKEEPER[1]),
    "no right to it": ("zookeeper", ZOOKEEPER[2]),
    "Kafka": ("kafka", KAFKA[0]),
    "YARN": ("yarn", YARN[2]),
    "candidates": ("candidates", GRPC[0]),
}


def check(line: list[str], capsys: pytest.CaptureFixture[str]) -> int:
    """Return the exit status of a command, whose last word is one line when a server is to blame."""
    status = main(line)
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert status in (0, 1, 2, 3), (line, said)
    assert status in (0, 1) or any(each.startswith("standfast: ") for each in said.splitlines()), (line, said)
    return status


def test_every_command_ends_with_a_line_when_every_server_is_away(
    user: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for names in COMMANDS:
        status = check(arguments_of(names, user), capsys)
        assert status in ((0,) if names in ASK_NO_SERVER else (2, 3)), names


@pytest.mark.parametrize("case", RAISED)
def test_every_command_ends_with_a_line_whatever_a_port_raises(
    case: str, user: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    port, error = RAISED[case]
    monkeypatch.setattr("appmaster.adapters.zookeeper.session.make_client", lambda *_: Tree())
    PORTS[port](monkeypatch, error)
    raised.clear()
    for names in COMMANDS:
        check(arguments_of(names, user), capsys)
    assert error in raised, "no command asks there"


def raise_from_a_command(error: Exception, patch: pytest.MonkeyPatch) -> int:
    """Return the exit status of a command that raises this."""
    parser = argparse.Namespace(parse_args=lambda _: argparse.Namespace(run=raiser(error)))
    patch.setattr(command_line, "build_parser", lambda: parser)
    return main([])


def test_what_no_adapter_translates_is_one_line_with_the_server_and_our_own_fault_is_not_hidden(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error in FOREIGN:
        refusal = isinstance(error, (kazoo.NoAuthError, kazoo.AuthFailedError))
        assert raise_from_a_command(error, monkeypatch) == (2 if refusal else 3), error
        (line,) = capsys.readouterr().err.splitlines()
        assert type(error).__name__ in line
    with pytest.raises(KeyError):
        raise_from_a_command(KeyError("ours"), monkeypatch)


def test_undoing_tells_of_a_librarys_error_and_not_in_place_of_the_commands_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> None:
        with Undo(Progress()) as undo:
            undo.on_failure("the topics", raiser(KAFKA[0]))
            raise ValueError("why")

    with pytest.raises(ValueError, match="why"):
        fail()
    assert "not removed: the topics: Kafka: KafkaException" in capsys.readouterr().err
