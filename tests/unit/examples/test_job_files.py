"""Each example's job file names the stores and topics that its code uses, and functions that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from appmaster.cli.shared.jobfile import load
from examples.orders import orders
from examples.visits import visits
from standby.feed.functions import job_code, step_of, transform_of

SERVERS = {"STANDFAST_KAFKA": "kafka:9092", "STANDFAST_ZOOKEEPER": "zookeeper:2181"}


@pytest.mark.parametrize(
    ("name", "inputs", "stores", "outputs"),
    [
        ("flights", {"flights"}, {"aircraft", "carriers"}, {"flight-delays", "unassigned-flights"}),
        ("orders", {orders.CUSTOMERS, "orders"}, {"customers", "waiting"}, {"orders-with-names"}),
        ("visits", {"page-views"}, {"seen", "visits"}, {"visits", visits.LATE_TOPIC}),
    ],
)
def test_the_job_file_names_what_is_there(
    name: str, inputs: set[str], stores: set[str], outputs: set[str]
) -> None:
    file = Path(orders.__file__).parents[1] / name / f"{name}.yaml"
    job = load(file, [], SERVERS)
    config = job.config
    assert (set(config.inputs), set(config.stores), set(config.outputs)) == (inputs, stores, outputs)
    with job_code(job.directory, config.modules):
        assert callable(transform_of(config))
        assert callable(step_of(config))


@pytest.mark.parametrize("name", ["flights", "orders", "visits"])
def test_the_commands_of_the_page_make_the_topics_before_they_submit_the_job(name: str) -> None:
    """`submit` refuses a job whose topics do not exist."""
    folder = Path(orders.__file__).parents[1] / name
    page = (folder / "README.md").read_text(encoding="utf-8")
    before, submitted, _ = page.partition("\nstandfast submit ")
    assert submitted
    if name == "flights":
        assert "examples.flights.replay --rows 0" in before
        return
    config = load(folder / f"{name}.yaml", [], SERVERS).config
    loop = re.search(r"^for topic in (.*); do\n    kafka-topics\.sh .* --create ", before, re.MULTILINE)
    assert loop is not None
    assert set(loop[1].split()) == {*config.inputs, *config.outputs}


@pytest.mark.parametrize("name", ["flights", "orders"])
def test_the_settings_that_the_page_gives_for_the_plain_feed_are_right(name: str) -> None:
    folder = Path(orders.__file__).parents[1] / name
    page = (folder / "README.md").read_text(encoding="utf-8")
    given = re.findall(r"--set\s+((?:task\.feed|task\.transform|job\.modules)=[^\s`]+)", page)
    job = load(folder / f"{name}.yaml", given, SERVERS)
    assert (job.config.feed, len(given)) == ("plain", 3)
    with job_code(job.directory, job.config.modules):
        assert transform_of(job.config).__module__ == f"{name}_plain"
        assert callable(step_of(job.config))
