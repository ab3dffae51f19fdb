"""What the servers' command lines are made of."""

from __future__ import annotations

import uuid

import hypothesis.strategies as st
from hypothesis import example, given

from embedded.servers import kafka_cluster_id


@given(st.uuids())
@example(uuid.UUID("ffffffff-ffff-ffff-ffff-ffffffffffff"))
@example(uuid.UUID("f8000000-0000-0000-0000-000000000000"))  # "-A…" in plain base64
def test_kafkas_cluster_id_is_never_taken_for_an_option(cluster_id: uuid.UUID) -> None:
    kafka_id = kafka_cluster_id(str(cluster_id))
    assert len(kafka_id) == 22
    assert kafka_id[0].isalpha()
