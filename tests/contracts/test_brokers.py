"""What real brokers report: their release, without a library's help, and how topics are replicated."""

from __future__ import annotations

import re
import socket
import threading
import uuid

import pytest
from confluent_kafka.cimpl import NewTopic

from appmaster.adapters.kafka_release import feature_level, inspect_brokers
from embedded.jars.cache import open_cache
from tests.topics import make_topics


def test_release_and_topics_of_the_embedded_broker(kafka_bootstrap: str) -> None:
    settings = {"bootstrap.servers": kafka_bootstrap}
    topic = f"out-{uuid.uuid4().hex}"
    make_topics(kafka_bootstrap, [NewTopic(topic, 2, 1, config={"unclean.leader.election.enable": "true"})])
    found = inspect_brokers(settings, (topic, "there-is-none"))
    jar = next(
        each.name for each in open_cache().classpath("kafka") if each.name.startswith("kafka-server-common")
    )
    release = re.search(r"4\.(\d+)\.", jar)
    assert release is not None
    # The levels of the last releases, as each of them said: 4.2 has 29.
    assert set(found.levels.values()) == {27 + int(release[1])}
    assert (found.default_replicas, found.most_transaction_ms) == (1, 900_000)
    assert sorted(found.topics) == ["__consumer_offsets", "__transaction_state", topic]
    assert found.topics[topic].replicas == 1
    assert found.topics[topic].settings["unclean.leader.election.enable"] == "true"


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\6\0\0\0\1\0\0"])
def test_who_is_no_broker_tells_no_release(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            client, _ = server.accept()
            with client:
                client.recv(1_000)
                client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(ValueError, match=r"answer|say"):
            feature_level({}, "127.0.0.1", server.getsockname()[1])
        thread.join()
