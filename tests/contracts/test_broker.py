"""What the kernel relies on from Kafka: the fake in memory and a real broker alike."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from standby.adapters.kafka.broker import connect
from standby.config import parse
from standby.errors import Transient
from standby.kernel.ports import Broker, Changelog, ChangelogRecord, OffsetsUnstable, Writer, WriterLost
from standby.replica.claim import Committed
from standby.replica.failing import InputRecord
from standby.replica.outbox import Emitted, Headers, Outputs
from standby.replica.store.keys import COMMIT, is_own, prefix
from standby.shared.model import Offsets
from standby.shared.wire import JobDefinition
from tests.fakes.kafka import UNREADABLE, Entry, MemoryBroker, MemoryKafka
from tests.librdkafka import produce_with_header
from tests.patience import LOOK_SECONDS, PATIENCE_SECONDS, soon
from tests.topics import make_topics

KEY = prefix("default") + b"key"


@dataclass
class Job:
    """A broker with a job's topics on it."""

    broker: Broker
    output: str
    changelog: str
    inputs: tuple[str, ...]

    def writer(self, partition: int = 0) -> Writer:
        writer = self.broker.open_writer(partition)
        writer.initialise(lambda: False, PATIENCE_SECONDS)
        return writer

    def settled_end(self) -> int:
        """Return the end of changelog 0 once every marker is there.

        A commit returns before its marker is written; the next initialisation waits for that.
        """
        self.writer().close()
        return self.broker.changelog_ends([0])[0]

    def prepare(
        self,
        writer: Writer,
        changes: dict[bytes, bytes | None],
        *offsets: int,
        outputs: Iterable[Emitted] = (),
        record: bytes = b"record",
        metadata: str = "m",
    ) -> None:
        """Begin a transaction, and have everything of it sent."""
        writer.begin(record)
        writer.prepare(Outputs.of(outputs), changes, Offsets.of(*offsets), metadata)

    def commit(self, writer: Writer, changes: dict[bytes, bytes | None], offset: int) -> int | None:
        self.prepare(writer, changes, offset)
        return writer.commit()

    def committed(self) -> Sequence[Committed | None]:
        """Return what is committed of partition 0."""
        return self.broker.committed([0])[0]

    def settled_changes(self) -> list[ChangelogRecord]:
        """Return the changes of stores that whoever reads changelog 0 gets, once every marker is there."""
        end, changelog = self.settled_end(), self.broker.open_changelog()
        changelog.add(0, 0)
        try:
            return read_to(changelog, 0, end)
        finally:
            changelog.close()


KINDS = ("memory", "kafka")


@pytest.fixture(params=KINDS)
def job(request: pytest.FixtureRequest) -> Iterator[Job]:
    yield from make_job(request, ("in",))


@pytest.fixture(params=KINDS)
def job_of_two(request: pytest.FixtureRequest) -> Iterator[Job]:
    """Its inputs are named the other way round than they are sorted."""
    yield from make_job(request, ("in", "also"))


def make_job(request: pytest.FixtureRequest, inputs: tuple[str, ...]) -> Iterator[Job]:
    name = f"contract-{uuid.uuid4().hex[:10]}"
    inputs = tuple(f"{name}-{each}" for each in inputs)
    is_real = request.param == "kafka"
    bootstrap = request.getfixturevalue("kafka_bootstrap") if is_real else "unused:1"
    flat = {
        "job.name": name,
        "task.inputs": ",".join(inputs),
        "task.outputs": f"{name}-out",
        "task.step": "m:f",
        # Longer than a question for offsets waits for a transaction to end.
        "job.transaction.timeout.ms": "60000",
        "kafka.bootstrap.servers": bootstrap,
        "zookeeper.connect": "unused:1",
    }
    definition = JobDefinition(name, "run", flat, f"{name}-changelog", f"{name}-group", 2)
    if is_real:
        topics = [NewTopic(each, 2, 1) for each in (*inputs, f"{name}-out", f"{name}-changelog")]
        make_topics(bootstrap, topics)
    broker: Broker = (connect if is_real else MemoryKafka().connect)("contract", parse(flat), definition)
    _await_leaders(broker)
    yield Job(broker, f"{name}-out", definition.changelog, inputs)
    broker.close()


#: Writes records to partition 0 of the job's input.
WriteInput = Callable[..., None]


@pytest.fixture
def write_input(job: Job, request: pytest.FixtureRequest) -> WriteInput:
    topic = job.inputs[0]

    def in_memory(records: list[InputRecord], *, is_transaction: bool = False) -> None:
        assert isinstance(job.broker, MemoryBroker)
        kafka = job.broker._kafka
        for each in records:
            headers = ((UNREADABLE, b"1"),) if each.has_unreadable_headers else each.headers
            kafka.append(topic, 0, each.key, each.value, headers)
        if is_transaction:
            kafka.logs[topic, 0].append(Entry(None, None, is_marker=True))

    def to_kafka(records: list[InputRecord], *, is_transaction: bool = False) -> None:
        bootstrap = request.getfixturevalue("kafka_bootstrap")
        settings = {"bootstrap.servers": bootstrap, "linger.ms": 0}
        producer = Producer({**settings, "transactional.id": topic} if is_transaction else settings)
        if is_transaction:
            producer.init_transactions(PATIENCE_SECONDS)
            producer.begin_transaction()
        for each in records:
            if each.has_unreadable_headers:
                produce_with_header(bootstrap, topic, each.key or b"", each.value or b"", b"caf\xe9")
                continue
            producer.produce(topic, each.value, each.key, 0, headers=list(each.headers))
        if is_transaction:
            producer.commit_transaction(PATIENCE_SECONDS)
            # It returns before its markers are written; the next owner's initialisation waits for them.
            Producer({**settings, "transactional.id": topic}).init_transactions(PATIENCE_SECONDS)
        assert producer.flush(PATIENCE_SECONDS) == 0

    return in_memory if isinstance(job.broker, MemoryBroker) else to_kafka


def _await_leaders(broker: Broker) -> None:
    """Return once every partition has a leader, a moment after its topic was made."""

    def are_led() -> bool:
        try:
            for partition in (0, 1):
                broker.input_bounds(partition)
                broker.changelog_bounds(partition)
        except Transient:
            return False
        return True

    soon(are_led, "every partition has a leader")


def of_stores(changes: Sequence[ChangelogRecord]) -> list[ChangelogRecord]:
    """Return the changes without the kernel's own."""
    return [each for each in changes if not is_own(each[0])]


def read_to(changelog: Changelog, partition: int, position: int) -> list[ChangelogRecord]:
    """Return what is read of stores until the partition's position is ``position``."""
    changes: list[ChangelogRecord] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        for number, chunk in changelog.read(100, LOOK_SECONDS).items():
            assert not chunk.is_out_of_range
            if number == partition:
                changes.extend(of_stores(chunk.changes))
                if chunk.position >= position:
                    assert chunk.position == position
                    return changes
    raise AssertionError(f"position {position} was not reached, only {changes} read")


def test_a_commit_brings_changes_offset_and_metadata_at_once(job: Job) -> None:
    writer = job.writer()
    assert job.committed() == (None,)
    output = Emitted(job.output, b"k", b"v", (("h", b"x"),))
    job.prepare(writer, {KEY: b"1", KEY + b"2": None}, 7, outputs=[output], metadata="meta")
    assert job.broker.changelog_ends([0], is_stable=True)[0] == 0
    assert writer.commit() == 3
    assert job.committed() == (Committed(7, "meta"),)
    end = job.settled_end()
    assert end == 4, "its own record, two changes and a marker"
    assert job.broker.changelog_bounds(0) == (0, end)
    assert job.settled_changes() == [(KEY, b"1"), (KEY + b"2", None)]


def test_a_commit_without_changes_writes_what_it_commits_alone(job: Job) -> None:
    writer = job.writer()
    assert job.commit(writer, {}, 3) == 1
    assert job.committed() == (Committed(3, "m"),)
    assert job.settled_end() == 2
    changelog = job.broker.open_changelog()
    changelog.add(0, 0)

    def read() -> list[ChangelogRecord]:
        return [each for chunk in changelog.read(100, LOOK_SECONDS).values() for each in chunk.changes]

    assert soon(read, "what it commits is read") == [(COMMIT, b"record")]
    changelog.close()


def test_commit_records_are_reported_whatever_became_of_their_transactions(job: Job) -> None:
    writer = job.writer()
    for number in range(3):
        job.prepare(writer, {KEY: b"1"}, number, record=b"%d" % number)
        if number == 1:
            writer.abort()
        else:
            assert writer.commit() == 3 * number + 2
    writer = job.writer()
    writer.begin(b"open")
    end = job.broker.changelog_ends([0])[0]
    assert end == 10
    assert job.broker.commit_records(0, 0, end) == [b"0", b"1", b"2", b"open"]
    assert job.broker.commit_records(0, 1, end - 1) == [b"1", b"2"]
    assert job.broker.commit_records(0, 7, end - 1) == []


def test_each_commit_tells_its_own_changelog_offset_and_commits_its_own_partition(job: Job) -> None:
    writer = job.writer(1)
    assert [job.commit(writer, {KEY: b"%d" % each}, each) for each in range(3)] == [2, 5, 8]
    assert job.commit(writer, {}, 9) == 10
    assert job.broker.committed([1, 0]) == {0: (None,), 1: (Committed(9, "m"),)}
    job.commit(job.writer(), {}, 5)
    assert job.broker.committed([1, 0]) == {0: (Committed(5, "m"),), 1: (Committed(9, "m"),)}
    assert job.broker.committed([]) == {}


def test_an_aborted_transaction_is_passed_and_not_seen(job: Job) -> None:
    writer = job.writer()
    job.commit(writer, {KEY: b"1"}, 1)
    job.prepare(writer, {KEY: b"aborted"}, 2)
    writer.abort()
    # Whether the record had left the producer when it was aborted is left open.
    assert job.settled_changes() == [(KEY, b"1")]
    assert job.committed() == (Committed(1, "m"),)


def test_a_sweep_is_never_seen_spares_the_given_outputs_and_commits_go_on(job: Job) -> None:
    writer = job.writer()
    job.commit(writer, {KEY: b"1"}, 1)
    before = job.settled_end()
    writer = job.writer()
    swept = writer.sweep()
    spared = [each for each in swept if each[0] == job.output]
    assert spared
    end = job.settled_end()
    assert all(end > swept[place] for place, end in job.broker.stable_ends(swept).items())
    assert end == before + 2, "a record and a marker"
    assert job.broker.changelog_ends([0], is_stable=True)[0] == end
    assert job.committed() == (Committed(1, "m"),)
    assert job.writer().sweep(spared).keys() == swept.keys() - {*spared}
    job.commit(job.writer(), {KEY: b"2"}, 2)
    assert job.settled_changes() == [(KEY, b"1"), (KEY, b"2")]
    assert job.committed() == (Committed(2, "m"),)


def test_where_a_commit_has_written_is_returned_and_there_it_is_seen(job: Job) -> None:
    writer = job.writer()
    outputs = [Emitted(job.output, b"k", b"1"), Emitted(job.output, b"k", b"2", (("h", b"v"),))]
    job.prepare(writer, {KEY: b"1"}, 1, outputs=outputs, record=b"first")
    end = writer.commit()
    places = writer.places()
    assert places[job.changelog, 0] == end - 1
    ((output, offset),) = [each for each in places.items() if each[0][0] == job.output]
    assert offset == 1
    soon(
        lambda: all(stable > places[place] for place, stable in job.broker.stable_ends(places).items()),
        "its markers",
    )
    assert all(job.broker.is_visible(place, offset) for place, offset in places.items())
    job.prepare(writer, {KEY: b"2"}, 2, outputs=[Emitted(job.output, b"k", b"3")], record=b"second")
    assert job.broker.stable_ends([output])[output] == offset + 2, "open behind the marker"
    assert not job.broker.is_visible(output, offset + 2)
    writer.abort()
    end = job.settled_end()
    assert not job.broker.is_visible(output, offset + 2)
    assert job.broker.is_visible(output, offset)
    assert list(job.broker.commit_records(0, 0, end)) == [b"first", b"second"]
    assert list(job.broker.commit_records(0, 0, end, is_stable=True)) == [b"first"]


def test_the_last_record_in_each_partition_is_returned_whatever_selects_the_partition(job: Job) -> None:
    keys = [None if each % 5 == 0 else b"key-%d" % each for each in range(40)]
    # The last records have headers, or no key, or neither.
    for first in (0, 1, 3):
        writer = job.writer()
        outputs = [
            Emitted(job.output, key, b"v", (("h", b"v"),) if at % 3 == 0 else ())
            for at, key in enumerate(keys[first:])
        ]
        job.prepare(writer, {}, first + 1, outputs=outputs)
        writer.commit()
        places = {place: at for place, at in writer.places().items() if place[0] == job.output}
        assert places
        job.settled_end()
        assert job.broker.stable_ends(places) == {place: at + 2 for place, at in places.items()}


def test_offsets_are_not_stable_while_a_transaction_is_open_among_them(job: Job) -> None:
    """This is an answer, which differs from none."""
    writer = job.writer()
    job.commit(writer, {KEY: b"1"}, 1)
    writer = job.writer()
    job.prepare(writer, {KEY: b"2"}, 2)
    with pytest.raises(OffsetsUnstable):
        job.broker.committed([0])
    writer.commit()
    job.settled_end()
    assert job.committed() == (Committed(2, "m"),)


def test_initialising_fences_the_one_before_and_ends_what_it_left(job: Job) -> None:
    old = job.writer()
    job.commit(old, {KEY: b"1"}, 1)
    job.prepare(old, {KEY: b"late"}, 2)
    new = job.writer()
    # Nothing is open any more: the end that is read now is stable.
    end = job.broker.changelog_ends([0])[0]
    assert job.broker.changelog_ends([0], is_stable=True)[0] == end
    with pytest.raises(WriterLost) as lost:
        old.commit()
    assert lost.value.fenced
    old.close()
    job.commit(new, {KEY: b"2"}, 2)
    assert job.settled_changes() == [(KEY, b"1"), (KEY, b"2")]
    assert job.committed() == (Committed(2, "m"),)


def test_a_writer_may_be_initialised_again_and_fences_again(job: Job) -> None:
    """A way to active that broke off behind its fence is gone once more with the same producer."""
    writer = job.writer()
    other = job.writer()
    job.commit(other, {KEY: b"other"}, 1)
    writer.initialise(lambda: False, PATIENCE_SECONDS)
    job.commit(writer, {KEY: b"1"}, 2)
    with pytest.raises(WriterLost) as lost:
        job.commit(other, {KEY: b"late"}, 3)
    assert lost.value.fenced
    assert job.committed() == (Committed(2, "m"),)


def test_a_producer_that_is_only_connected_fences_no_other(job: Job) -> None:
    writer = job.writer()
    spare = job.broker.open_writer(0)
    assert job.commit(writer, {KEY: b"1"}, 1) == 2
    with pytest.raises(WriterLost):
        spare.commit()


def test_a_closed_writer_is_lost(job: Job) -> None:
    writer = job.writer()
    job.prepare(writer, {KEY: b"1"}, 1)
    writer.close()
    writer.close()
    with pytest.raises(WriterLost):
        writer.commit()
    assert job.broker.changelog_ends([0], is_stable=True)[0] == 0, "left to the next owner's fence"
    job.writer()
    assert job.broker.changelog_ends([0], is_stable=True)[0] == job.broker.changelog_ends([0])[0]


def test_partitions_come_and_go_in_one_reader(job: Job) -> None:
    first, second = job.writer(0), job.writer(1)
    job.commit(first, {KEY: b"a"}, 1)
    job.commit(second, {KEY: b"b"}, 1)
    changelog = job.broker.open_changelog()
    changelog.add(0, 0)
    assert read_to(changelog, 0, 3) == [(KEY, b"a")]
    changelog.add(1, 2)
    assert read_to(changelog, 1, 3) == []
    changelog.remove(0)
    job.commit(first, {KEY: b"unread"}, 2)
    job.commit(second, {KEY: b"c"}, 2)
    assert read_to(changelog, 1, 6) == [(KEY, b"c")]
    changelog.add(0, 3)
    assert read_to(changelog, 0, 6) == [(KEY, b"unread")]
    changelog.close()


def test_a_paused_partition_brings_nothing_until_it_goes_on_where_it_was(job: Job) -> None:
    first, second = job.writer(0), job.writer(1)
    changelog = job.broker.open_changelog()
    job.commit(first, {KEY: b"1"}, 1)
    changelog.add(0, 0)
    changelog.add(1, 0)
    assert read_to(changelog, 0, 3) == [(KEY, b"1")]
    for _ in range(2):
        changelog.pause(0)
    job.commit(first, {KEY: b"2", KEY + b"3": b""}, 2)
    job.commit(second, {KEY: b"other"}, 1)
    # What comes of the other one shows that reading goes on.
    seen: dict[int, list[ChangelogRecord]] = {0: [], 1: []}
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not seen[1]:
        assert time.monotonic() < deadline
        for partition, chunk in changelog.read(100, LOOK_SECONDS).items():
            seen[partition].extend(of_stores(chunk.changes))
    assert seen == {0: [], 1: [(KEY, b"other")]}
    for _ in range(2):
        changelog.resume(0)
    assert read_to(changelog, 0, 7) == [(KEY, b"2"), (KEY + b"3", b"")]
    changelog.pause(0)
    changelog.remove(0)
    job.commit(first, {KEY: b"4"}, 3)
    # It was paused before it was removed, which is forgotten.
    changelog.add(0, 7)
    assert read_to(changelog, 0, 10) == [(KEY, b"4")]
    changelog.close()


def test_what_was_fetched_ahead_of_a_pause_comes_once_after_it(job: Job) -> None:
    count = 3_000
    writer = job.writer()
    job.commit(writer, {KEY + b"%06d" % each: b"v" * 50 for each in range(count)}, 1)
    changelog = job.broker.open_changelog()
    changelog.add(0, 0)
    changes: list[ChangelogRecord] = []
    position, turns = 0, 0
    deadline = time.monotonic() + PATIENCE_SECONDS
    while position <= count + 1:
        assert time.monotonic() < deadline, (position, len(changes))
        turns += 1
        if turns % 10 == 0:
            changelog.pause(0)
            assert not changelog.read(100, LOOK_SECONDS), "a paused partition brings nothing"
            changelog.resume(0)
        chunk = changelog.read(100, LOOK_SECONDS).get(0)
        if chunk is not None:
            changes.extend(of_stores(chunk.changes))
            assert chunk.position > position
            position = chunk.position
    assert [key for key, _ in changes] == [KEY + b"%06d" % each for each in range(count)]
    changelog.close()


def test_a_position_outside_is_reported_and_the_others_go_on(job: Job) -> None:
    writer = job.writer(1)
    job.commit(writer, {KEY: b"a"}, 1)
    changelog = job.broker.open_changelog()
    changelog.add(0, 99)
    changelog.add(1, 0)
    lost, read = False, list[ChangelogRecord]()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (lost and read):
        assert time.monotonic() < deadline
        for partition, chunk in changelog.read(100, LOOK_SECONDS).items():
            if partition == 0:
                assert chunk.is_out_of_range
                lost = True
                changelog.remove(0)
            else:
                read.extend(of_stores(chunk.changes))
    assert read == [(KEY, b"a")]
    changelog.close()


def test_an_input_record_is_read_as_it_lies_there(job: Job, write_input: WriteInput) -> None:
    headers: Headers = (("trace", b"1"), ("trace", b""), ("none", None))
    write_input([InputRecord(0, b"k", b"v"), InputRecord(1, None, b"", headers), InputRecord(2, b"", None)])
    assert job.broker.read_input(job.inputs[0], 0, 0) == InputRecord(0, b"k", b"v")
    assert job.broker.read_input(job.inputs[0], 0, 1) == InputRecord(1, None, b"", headers)
    assert job.broker.read_input(job.inputs[0], 0, 2) == InputRecord(2, b"", None)
    assert job.broker.read_input(job.inputs[0], 0, 3) is None
    assert job.broker.read_input(job.inputs[0], 1, 0) is None
    write_input([InputRecord(3, b"k", b"v")], is_transaction=True)
    assert job.broker.read_input(job.inputs[0], 0, 3) == InputRecord(3, b"k", b"v")
    assert job.broker.read_input(job.inputs[0], 0, 4) is None, "the marker of a transaction"


def test_a_record_is_read_without_headers_that_cannot_be_decoded(job: Job, write_input: WriteInput) -> None:
    """Otherwise it could not be given up, whether or not the job asks for headers."""
    record = InputRecord(0, b"k", b"v", has_unreadable_headers=True)
    write_input([record])
    assert job.broker.read_input(job.inputs[0], 0, 0) == record


def test_the_input_has_bounds(job: Job) -> None:
    assert job.broker.input_bounds(0) == ((0, 0),)
    assert job.broker.input_ends([0, 1]) == {0: 0, 1: 0}
    assert job.broker.input_ends([]) == {}
    asked = [job.broker.ask_topic_ids((job.output, *job.inputs, "no-such-topic")) for _ in range(2)]
    first, again = (each() for each in asked)
    assert first == again
    assert set(first) == {job.output, *job.inputs}
    assert len(set(first.values())) == len(first)


def test_what_was_connected_ahead_answers_and_is_connected_once(job: Job) -> None:
    def is_connecting() -> bool:
        return any(each.name == "offsets-connect" for each in threading.enumerate())

    job.broker.connect()
    assert job.broker.changelog_ends([0], is_stable=True) == {0: 0}
    soon(lambda: not is_connecting(), "it is connected")
    job.broker.connect()
    assert not is_connecting()
    job.broker.close()
    job.broker.connect()
    assert not is_connecting()


def test_a_partition_that_no_broker_answers_for_is_left_out(job_of_two: Job) -> None:
    """One that does not exist is as one without a leader: it must not keep the others' ends from being known."""
    broker = job_of_two.broker
    assert broker.changelog_ends([0, 9, 1]) == {0: 0, 1: 0}
    assert broker.changelog_ends([9, 0], is_stable=True) == {0: 0}
    assert broker.input_ends([0, 9]) == {0: 0}
    for ask in (broker.changelog_ends, broker.input_ends):
        assert ask([]) == {}
        with pytest.raises(Transient):
            ask([9])


def test_the_offsets_of_all_inputs_are_committed_as_one_in_the_order_of_the_inputs(job_of_two: Job) -> None:
    job = job_of_two
    assert job.committed() == (None, None)
    writer = job.writer()
    job.prepare(writer, {}, 7, 3, metadata="first")
    writer.commit()
    assert job.committed() == (Committed(7, "first"), Committed(3, "first"))
    job.prepare(writer, {}, 8, 3, metadata="second")
    writer.abort()
    assert job.committed() == (Committed(7, "first"), Committed(3, "first"))
    job.prepare(writer, {}, 8, 3, metadata="third")
    writer.commit()
    writer.close()
    assert job.committed() == (Committed(8, "third"), Committed(3, "third"))
    assert job.broker.committed([1])[1] == (None, None)
    assert job.broker.input_bounds(0) == ((0, 0), (0, 0))
    assert job.broker.input_ends([0, 1]) == {0: 0, 1: 0}


def test_every_input_has_its_own_bounds_and_records(job_of_two: Job) -> None:
    job = job_of_two
    first, second = job.inputs
    for topic, values in ((first, [b"a"]), (second, [b"x", b"y"])):
        writer = job.writer()
        job.prepare(writer, {}, 0, 0, outputs=[Emitted(topic, b"k", each) for each in values])
        writer.commit()
        writer.close()
    job.writer().close()  # the next writer waits for the transactions' markers
    where = [
        next(each for each in (0, 1) if job.broker.read_input(topic, each, 0) is not None)
        for topic in (first, second)
    ]
    found = job.broker.read_input(second, where[1], 0)
    assert found is not None
    assert found.value == b"x"
    found = job.broker.read_input(first, where[0], 0)
    assert found is not None
    assert found.value == b"a"
    bounds = [job.broker.input_bounds(each) for each in (0, 1)]
    assert bounds[where[0]][0] == (0, 2), "a record and its transaction's marker"
    assert bounds[where[1]][1] == (0, 3)
    ends = job.broker.input_ends([0, 1])
    assert ends == {each: sum(end for _, end in of) for each, of in enumerate(bounds)}


def test_how_transactions_ended_is_read_from_their_coordinator(job: Job) -> None:
    """The newest first; of one that was begun, and fenced, as well."""
    writer = job.broker.open_writer(0)
    writer.initialise(lambda: False, PATIENCE_SECONDS)
    assert list(job.broker.ended(0, 5)) == []
    job.commit(writer, {b"k": b"1"}, 1)
    job.prepare(writer, {}, 2, outputs=[Emitted(job.output, b"k", b"v")])
    writer.abort()
    writer.begin(b"record")
    later = job.broker.open_writer(0)
    later.initialise(lambda: False, PATIENCE_SECONDS)
    found = job.broker.ended(0, 5)
    assert [each.is_committed for each in found] == [False, False, True]
    assert [len(each.topics) for each in found] == [1, 3, 2]
    assert [job.output in each.topics for each in found] == [False, True, False]
    assert all((job.changelog, 0) in each.places for each in found)
    (first,) = {each.writer for each in found}
    assert first is not None
    later.begin(b"record")
    later.abort()
    assert job.broker.ended(0, 1)[0].writer not in (first, None), "a fence does not hide its writer"
    assert list(job.broker.ended(0, 4))[1:] == found
    assert list(job.broker.ended(1, 5)) == []
    writer.close()
    later.close()
