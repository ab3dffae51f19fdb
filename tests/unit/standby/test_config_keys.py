"""Everything about a key follows from its one declaration: what has it, what a change takes, what is checked."""

from __future__ import annotations

import dataclasses
import re
from contextlib import nullcontext
from pathlib import Path

import pytest

from appmaster.changes.compatibility import OF_THE_CLUSTER
from appmaster.changes.revisions import OF_THE_RUN
from appmaster.config import cluster_config, job_demand, planner_policy
from appmaster.planning.state.job import PlannerPolicy
from standby.cluster import ClusterConfig, dump, load
from standby.config import JobConfig, check_size, keys, parse
from standby.config.cluster import ClusterKeys
from standby.config.keys import MOST_CONTAINERS, MOST_COPIES, ConfigKey, key
from standby.config.planner import PlannerKeys
from standby.errors import BadConfiguration
from tests.cases import case
from tests.fakes.jobs import JOB

MINIMAL = {**JOB, "job.name": "a"}

#: What a number's name ends with where it has a unit.
UNITS = {
    ".ms": "ms",
    ".seconds": "s",
    ".mb": "MiB",
    ".max.bytes": "bytes",
    ".per.second": "bytes/s",
    ".records": "records",
}


def another(key: ConfigKey, field: dataclasses.Field[object]) -> str:
    """Return a value of a key that is not its default, as a job file gives it."""
    if key.choices:
        return next(each for each in key.choices if each != field.default)
    if isinstance(field.default, bool):
        return str(not field.default).lower()
    if isinstance(field.default, int):
        return str(max(field.default, 1) * 2)
    return "/other"


def changed(group: type[PlannerKeys | ClusterKeys]) -> JobConfig:
    """Return a configuration in which every key of a group has another value than by default."""
    of_group = {each.name for each in dataclasses.fields(group)}
    given = {key.name: another(key, field) for key, field in keys() if field.name in of_group}
    config = parse({**MINIMAL, **given})
    for each in dataclasses.fields(group):
        assert getattr(config, each.name) != each.default, each.name
    return config


def test_planner_has_its_keys_as_the_job_gives_them() -> None:
    config = changed(PlannerKeys)
    found = planner_policy(config)
    for each in dataclasses.fields(PlannerKeys):
        assert getattr(found, each.name) == getattr(config, each.name), each.name


def test_policy_says_of_no_key_anything_of_its_own() -> None:
    of_policy, of_job = (
        {each.name for each in dataclasses.fields(cls)} for cls in (PlannerPolicy, JobConfig)
    )
    assert of_policy & of_job == {each.name for each in dataclasses.fields(PlannerKeys)}
    config = parse(MINIMAL)
    policy = dataclasses.replace(planner_policy(config), fails_on_error=True)
    assert policy == PlannerPolicy(demand=job_demand(config))


def test_processes_have_the_cluster_s_keys_as_the_job_gives_them(tmp_path: Path) -> None:
    config = changed(ClusterKeys)
    path = tmp_path / "cluster.json"
    path.write_bytes(dump(cluster_config(config, 2, {"h1": "/r1"}, 3)))
    found = load(path)
    assert (found.name, found.zookeeper, found.cell, found.attempts) == ("a", "127.0.0.1:1", 2, 3)
    assert (found.kafka_bootstrap, found.racks) == ("127.0.0.1:1", {"h1": "/r1"})
    for each in dataclasses.fields(ClusterKeys):
        assert getattr(found, each.name) == getattr(config, each.name), each.name


def test_cluster_says_of_no_key_anything_of_its_own() -> None:
    defaults = {each.name: each.default for each in dataclasses.fields(ClusterKeys)}
    found = ClusterConfig("a", "z:1")
    assert {name: getattr(found, name) for name in defaults} == defaults


def test_every_key_belongs_to_one_group() -> None:
    names = [key.name for key, _ in keys()]
    assert len(set(names)) == len(names)
    assert {field.name for _, field in keys()} | {"kafka", "spark"} == {
        each.name for each in dataclasses.fields(JobConfig)
    }, "a group's field hides another's"


def test_only_keys_of_the_job_change_while_it_runs() -> None:
    assert {key.applies for key, _ in keys() if key.scope != "job"} == {"never"}
    assert set(OF_THE_CLUSTER) == {key.name for key, _ in keys() if key.scope == "cluster"}
    assert set(OF_THE_RUN) == {key.name for key, _ in keys() if key.scope == "run"}
    with pytest.raises(ValueError, match="a key of the run never changes"):
        key("a.key", "", scope="run", applies="live")


def test_number_tells_its_unit_and_its_bounds() -> None:
    for declared, field in keys():
        expected = next((unit for end, unit in UNITS.items() if declared.name.endswith(end)), "")
        assert declared.unit == expected, declared.name
        for bound in (declared.minimum, declared.maximum):
            assert (bound is not None) == (str(field.type) == "int"), declared.name


def test_value_that_its_declaration_does_not_allow_is_refused() -> None:
    for name, value, said in (
        ("job.hotstandby.lag.time.ms", "5s", r"'5s' is not a whole number \(ms\)"),
        ("job.container.count", "0", "0 is below the least allowed, 1"),
        ("yarn.am.http.port", "70000", "70000 is above the most allowed, 65535"),
        ("job.container.count", "1000000000", "1000000000 is above the most allowed, 3000"),
        (
            "job.restore.peer.max.bytes.per.second",
            "1048575",
            "1048575 is neither 0, which is no limit, nor at least 1048576",
        ),
        ("yarn.racks", "h1", "'h1' is not allowed; it can be host=value"),
        ("yarn.host.attributes", "=a:b", "'=a:b' is not allowed; it can be host=value"),
        ("job.state.dir", "/a,b", "'b' is not allowed; it can be an absolute path"),
        ("job.state.dir", "/a,/b,/a", "'/a' is given twice; keep one"),
    ):
        with case(name, value), pytest.raises(BadConfiguration, match=f"{re.escape(name)}: {said}"):
            parse({**MINIMAL, name: value}, is_new=True)


def test_what_is_recorded_may_be_above_the_most_that_is_allowed_now() -> None:
    recorded = {key.name: str(key.maximum + 1) for key, _ in keys() if key.maximum is not None}
    found = parse({**MINIMAL, **recorded, "job.hotstandby.enabled": "true"})
    assert (found.container_count, found.retry_count) == (MOST_CONTAINERS + 1, 10_001)
    with pytest.raises(BadConfiguration, match="below the least allowed"):
        parse({**MINIMAL, "cluster-manager.container.retry.count": "-2"})


def test_limit_of_copies_that_is_too_low_now_goes_on_where_it_is_recorded() -> None:
    slow = {**MINIMAL, "job.restore.peer.max.bytes.per.second": "1000"}
    assert parse(slow).peer_max_bytes_per_second == 1_000
    assert parse(slow, is_new=True, present=slow).peer_max_bytes_per_second == 1_000
    for allowed in (0, 1 << 20):
        asked = {**MINIMAL, "job.restore.peer.max.bytes.per.second": str(allowed)}
        assert parse(asked, is_new=True).peer_max_bytes_per_second == allowed


def test_job_whose_numbers_are_allowed_and_their_product_is_not_is_refused_with_what_is() -> None:
    for containers, standbys, tasks, is_mixed, said in (
        (3_000, 1, 1_500, False, ""),
        (
            3_000,
            1,
            1_501,
            False,
            r"^job\.container\.count: 1501 .* 3002 containers, .* to at most 1500, or lower",
        ),
        (3_000, 1, 30_000, True, ""),
        (10, 5, 10_000, False, ""),
        (
            10,
            6,
            10_000,
            False,
            r"^job\.hotstandby\.replicationcount: 10000 tasks .* 70000 .* to at most 5$",
        ),
        (10, 0, 60_001, False, r"^task\.inputs: 60001 partitions .* may have 60000; .* fewer partitions$"),
    ):
        given = {
            "job.container.count": str(containers),
            "job.hotstandby.enabled": "true",
            "job.hotstandby.replicationcount": str(standbys),
            "job.hotstandby.mixed": str(is_mixed).lower(),
        }
        refused = pytest.raises(BadConfiguration, match=said) if said else nullcontext()
        with case(containers, standbys, tasks), refused:
            check_size(parse({**MINIMAL, **given}), tasks)


def test_a_job_that_is_too_large_already_may_be_updated_unless_it_grows() -> None:
    large = parse({**MINIMAL, "job.hotstandby.enabled": "true", "job.hotstandby.replicationcount": "2"})
    check_size(large, MOST_COPIES, large)
    larger = parse({**MINIMAL, "job.hotstandby.enabled": "true", "job.hotstandby.replicationcount": "3"})
    with pytest.raises(BadConfiguration, match="copies"):
        check_size(larger, MOST_COPIES, large)


def test_cluster_s_file_without_every_key_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(
        '{"name":"a","zookeeper":"z:1","cell":2,"heartbeat_interval_ms":300,"heartbeat_timeout_ms":4000,'
        '"racks":{"h":"/r"},"state_dirs":["/s"],"kafka":{"a":"b"},'
        '"zookeeper_tls":{"ca":"/ca"}}',
        encoding="utf-8",
    )
    found = load(path)
    assert (found.heartbeat_interval_ms, found.state_dirs, found.racks) == (300, ("/s",), {"h": "/r"})
    assert found.zookeeper_tls is not None
    assert found.zookeeper_tls.ca == "/ca"
