"""Hosts with networks of their own: what is cut off answers nothing, and the machine itself sees none of it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from demo.command import ROOT
from embedded.machine.processes import CLUSTER_MARK, Owned
from standby.errors import Unavailable
from tests.patience import PATIENCE_SECONDS

#: Makes two hosts, and prints which of them reach a port outside: at first, with the first one cut, and in the end.
PROGRAM = """
import os, pathlib, socket, subprocess, sys
from demo.network import SERVERS, NetworkHost, enter

try:
    enter(sys.orig_argv[1:])
except Exception as error:
    sys.exit(f"{type(error).__name__}: {error}")
log = pathlib.Path(sys.argv[1])
hosts = [NetworkHost.make(number, os.environ, log) for number in (11, 12)]
listener = socket.create_server((SERVERS, 0))
patience = float(sys.argv[2])

def ask(host, seconds):
    connect = f"import socket; socket.create_connection(('{SERVERS}', {listener.getsockname()[1]}), {seconds})"
    done = subprocess.run([*host.inside, sys.executable, "-c", connect], stderr=subprocess.DEVNULL)
    return "silent" if done.returncode else "reached"

print(ask(hosts[0], patience), ask(hosts[1], patience))
hosts[0].cut()
print(ask(hosts[0], 0.3), ask(hosts[1], patience))
hosts[0].connect()
print(ask(hosts[0], patience), ask(hosts[1], patience))
"""


def test_a_host_that_is_cut_off_reaches_nothing_until_it_is_connected_again(tmp_path: Path) -> None:
    mark = f"network-{uuid.uuid4()}"
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path / "log"), str(PATIENCE_SECONDS)],
            cwd=ROOT,
            env={**os.environ, CLUSTER_MARK: mark},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        held = Owned(mark, {}).kill()
    if done.stderr.startswith(Unavailable.__name__):
        pytest.skip(done.stderr)
    assert done.stdout.splitlines() == ["reached reached", "silent reached", "reached reached"], done.stderr
    assert held == 2, "a host is there for as long as its holder"
    assert not {"host11", "host12"} & {name for _, name in socket.if_nameindex()}
