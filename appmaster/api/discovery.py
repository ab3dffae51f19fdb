"""Prometheus's HTTP service discovery: the candidates and containers that serve metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from appmaster.records import CandidateRecord
from standby.shared.records import ContainerRecord


def targets(
    cluster: str, candidates: Iterable[CandidateRecord], containers: Iterable[ContainerRecord]
) -> list[dict[str, Any]]:
    """Return a target group for every candidate and container that serves metrics.

    The labels are `cluster`, `component`, `host` and the id. They are not called `role` or `kind`: metrics have
    labels of these names, and Prometheus would keep only one of the two.
    """
    found = [
        _target(each.host, each.http_port, cluster, "candidate", each.candidate)
        for each in candidates
        if each.http_port
    ]
    found += [
        _target(each.host, each.http_port, cluster, "container", each.container)
        for each in containers
        if each.http_port
    ]
    return sorted(found, key=lambda each: (each["labels"]["component"], each["targets"]))


def _target(host: str, port: int, cluster: str, component: str, name: str) -> dict[str, Any]:
    return {
        "targets": [f"{host}:{port}"],
        "labels": {"cluster": cluster, "component": component, "host": host, component: name},
    }
