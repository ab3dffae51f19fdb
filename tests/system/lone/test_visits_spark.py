"""The visits example's Spark half: JSON as trackers send it becomes the rows that its step is tested with."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

from appmaster.cli.shared.jobfile import load
from examples.visits import visits
from standby.adapters.spark.session import Spark
from standby.feed.functions import job_code
from standby.feed.spark import check_spark_transform, settings_of
from standby.replica.outbox import Outbox
from tests.fakes.task_state import TaskState

DIRECTORY = Path(visits.__file__).parent
SCHEMA = "key BINARY, value BINARY, timestamp TIMESTAMP, _task INT, _offset LONG"
NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)

#: Value as it comes, and (id, page, minutes after noon) when it is a view.
RECORDS: list[tuple[bytes | None, tuple[str, str, int] | None]] = [
    (b'{"id": "1", "page": "/", "at": "2026-03-01T12:00:00Z"}', ("1", "/", 0)),
    (b'{"id": "2", "page": "/cart", "at": "2026-03-01T14:20:00+02:00", "more": [1]}', ("2", "/cart", 20)),
    (b"no JSON", None),
    (b'{"id": "3", "page": "/"}', None),
    (b'{"id": null, "page": "/", "at": "2026-03-01T12:00:00Z"}', None),
    (None, None),
    ('{"id": "4", "page": "/räder", "at": "2026-03-01T13:30:00Z"}'.encode(), ("4", "/räder", 90)),
]


def test_views_are_parsed_and_the_rest_is_dropped() -> None:
    servers = {"STANDFAST_KAFKA": "kafka:9092", "STANDFAST_ZOOKEEPER": "zookeeper:2181"}
    job = load(DIRECTORY / "visits.yaml", [], servers)
    config = job.config
    came = [(b"visitor", value, NOON, 0, offset) for offset, (value, _) in enumerate(RECORDS)]
    with job_code(job.directory, config.modules) as code:
        spark = Spark.acquire(settings_of(config, code))
        try:
            # As a streaming plan, too.
            check_spark_transform(config, code)
            frame = spark.session.createDataFrame(came, SCHEMA)
            rows = visits.parse(frame).toArrow()
        finally:
            spark.release()
    expected = [(offset, view) for offset, (_, view) in enumerate(RECORDS) if view is not None]
    assert rows["_offset"].to_pylist() == [offset for offset, _ in expected]
    assert list(zip(rows["id"].to_pylist(), rows["page"].to_pylist(), strict=True)) == [
        view[:2] for _, view in expected
    ]
    minutes = [(each - NOON).total_seconds() / 60 for each in rows["at"].to_pylist()]
    assert minutes == [view[2] for _, view in expected]

    out = Outbox(config.outputs)
    with TaskState(*config.stores).batch() as stores:
        visits.visits(rows, stores, out)
    (visit,) = out.records
    assert visit.topic == "visits"
    assert json.loads(visit.value or b"")["visit"] == {"views": 2, "pages": {"/": 1, "/cart": 1}}
