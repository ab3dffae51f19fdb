"""The compose file and the Kubernetes manifest: they parse, and what they say is what the product does.

Neither was run: what an engine makes of them is not tested here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from appmaster.adapters.http import HttpPort
from appmaster.cli.clusters import standalone
from appmaster.cli.main import build_parser
from standby import cluster as cluster_file
from standby.process import container
from tests.cases import case

DIRECTORY = Path(standalone.__file__).parents[3] / "examples" / "standalone"

COMPOSE: dict[str, Any] = yaml.safe_load((DIRECTORY / "compose.yaml").read_text())
KUBERNETES: list[dict[str, Any]] = list(yaml.safe_load_all((DIRECTORY / "kubernetes.yaml").read_text()))
SETS = {each["metadata"]["name"]: each for each in KUBERNETES if each["kind"] == "StatefulSet"}

#: The commands in comments, one per line, with the continuation of a line.
SHOWN = re.compile(r"^# +(?:docker compose run --rm command|standfast) ((?:.*\\\n# )*.*)$", re.MULTILINE)


def pod(name: str) -> dict[str, Any]:
    found: dict[str, Any] = SETS[name]["spec"]["template"]["spec"]
    return found


def commands() -> Iterator[tuple[str, list[str]]]:
    for name, each in COMPOSE["services"].items():
        if each["image"].startswith("standfast:"):
            yield name, each["command"]
    for name in SETS:
        yield name, pod(name)["containers"][0]["args"]
    for file in ("compose.yaml", "kubernetes.yaml"):
        for shown in SHOWN.findall((DIRECTORY / file).read_text()):
            yield file, re.sub(r"\\\n#", " ", shown).split("   #")[0].split()


def test_each_command_line_is_one_of_the_command() -> None:
    found = list(commands())
    assert len(found) >= 12
    for name, arguments in found:
        with case(name):
            assert callable(build_parser().parse_args(arguments).run)


def test_each_process_has_a_name_and_a_state_directory_of_its_own() -> None:
    for name, arguments in commands():
        if arguments[0] not in ("master", "node") or name.endswith(".yaml"):
            continue
        with case(name):
            parsed = build_parser().parse_args(arguments)
            assert parsed.config == Path("/etc/standfast")
            if name in SETS:
                assert parsed.host == f"$(POD).{SETS[name]['spec']['serviceName']}"
                mounts = pod(name)["containers"][0]["volumeMounts"]
                assert {"name": "state", "mountPath": str(parsed.state)} in mounts
            else:
                assert parsed.host == COMPOSE["services"][name]["hostname"] == name
                assert f"{name}:{parsed.state}" in COMPOSE["services"][name]["volumes"]
                assert name in COMPOSE["volumes"]


def test_a_node_has_more_time_to_end_than_its_hand_overs_take() -> None:
    (unit,) = re.findall(r"TimeoutStopSec=(\d+)", standalone._UNIT)
    assert int(unit) * 1_000 > container._LEAVE_MS
    assert [pod(name)["terminationGracePeriodSeconds"] for name in SETS] == [int(unit)] * 2
    periods = {
        COMPOSE["services"][name]["stop_grace_period"]
        for name, arguments in commands()
        if name in COMPOSE["services"] and arguments[0] in ("master", "node")
    }
    assert periods == {f"{unit}s"}


def _port_of_init(arguments: list[str]) -> int:
    parsed = build_parser().parse_args(arguments)
    settings = dict(each.split("=", 1) for each in parsed.settings)
    return int(settings["yarn.am.http.port"])


def test_masters_are_probed_at_the_port_and_path_that_they_serve() -> None:
    (port,) = {_port_of_init(arguments) for _, arguments in commands() if arguments[0] == "init"}
    metrics: Any = SimpleNamespace(render=None)
    server = HttpPort("127.0.0.1", metrics, dict, list, shows_all=False)
    try:
        answered = set(server._pages)
    finally:
        server.close()
    (master,) = pod("standfast-master")["containers"]
    for probe in ("readinessProbe", "livenessProbe"):
        assert master[probe]["httpGet"] == {"path": "/healthz", "port": port}
    assert "/healthz" in answered
    assert master["ports"] == [{"name": "http", "containerPort": port}]
    for name in ("master1", "master2"):
        assert f"http://{name}:{port}/healthz" in COMPOSE["services"][name]["healthcheck"]["test"][-1]


def test_nodes_get_neither_the_owner_s_secret_nor_a_machine_with_another_one() -> None:
    text = (DIRECTORY / "kubernetes.yaml").read_text()
    secrets = dict(re.findall(r"create secret generic (\S+) (.*)$", text, re.MULTILINE))
    files = {name: set(re.findall(r"--from-file=prod/(\S+)", said)) for name, said in secrets.items()}
    mine = {"standfast-master": "master.json", "standfast-node": "node.json"}
    assert files == {name: {cluster_file.FILE, each} for name, each in mine.items()}
    assert set(mine.values()) == set(standalone._CREDENTIALS.values())
    for name in SETS:
        (volume,) = pod(name)["volumes"]
        assert volume == {"name": "config", "secret": {"secretName": name}}
        (rule,) = pod(name)["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        labels = SETS[name]["spec"]["template"]["metadata"]["labels"]
        assert rule["topologyKey"] == "kubernetes.io/hostname"
        assert rule["labelSelector"]["matchLabels"] == labels == SETS[name]["spec"]["selector"]["matchLabels"]


def test_services_are_headless_and_know_their_pods_before_these_are_ready() -> None:
    services = {each["metadata"]["name"]: each["spec"] for each in KUBERNETES if each["kind"] == "Service"}
    assert services.keys() == {each["spec"]["serviceName"] for each in SETS.values()}
    for name, spec in services.items():
        assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)
        assert spec["selector"] == SETS[name]["spec"]["selector"]["matchLabels"]


@pytest.mark.parametrize("name", ["Dockerfile", "compose.yaml", "kubernetes.yaml"])
def test_what_was_not_run_says_so(name: str) -> None:
    assert "NOT RUN" in (DIRECTORY / name).read_text()


def test_the_image_owns_the_directories_that_the_files_use() -> None:
    text = (DIRECTORY / "Dockerfile").read_text()
    assert 'ENTRYPOINT ["tini", "--", "standfast"]' in text, "command lines begin behind it"
    (owned,) = re.findall(r"install -d -o standfast -g standfast -m 0700 (.*) *$", text, re.MULTILINE)
    assert {"/var/lib/standfast", "/etc/standfast", "/home/standfast/.standfast"} == set(owned.split())
    assert "--uid 1000" in text
    assert {pod(name)["securityContext"]["runAsUser"] for name in SETS} == {1_000}
