"""Code on a candidate's disk, the rules case by case, and which revision of a job is led."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from appmaster.adapters.code.distributors import DistributorChain
from appmaster.changes import revisions
from appmaster.code import rules, steps
from appmaster.code.activation import effective, needs
from appmaster.code.rules import CodeView, Directory, JobNeeds
from appmaster.code.store import BundleStore
from appmaster.records import JobRecord
from standby.adapters.peers.code import PeerCode
from standby.code import bundles
from standby.errors import BadConfiguration, CorruptState, Transient, Unavailable
from standby.shared.peers import BundleSource
from standby.shared.wire import JobDefinition
from tests.unit.appmaster.changes.test_operations import CONFIG
from tests.unit.appmaster.code.test_service import NoWay

DATA = b"abc" * 1000
DIGEST = bundles.digest_of(DATA)


def revision(number: int, code: str) -> JobDefinition:
    return JobDefinition("j1", "run1", CONFIG, "changelog", "group", 4, revision=number, code=code)


def test_a_part_grows_only_at_its_end_and_becomes_a_bundle_only_when_it_is_one(tmp_path: Path) -> None:
    store = BundleStore(tmp_path / "deep" / "down")
    assert store.append(DIGEST, 0, DATA[:10]) == 10
    assert store.append(DIGEST, 5, DATA[5:20]) == 10, "of another upload: the answer says where to continue"
    assert store.append(DIGEST, 10, DATA[10:]) == len(DATA)
    assert not store.has(DIGEST)
    store.complete(DIGEST, store.part(DIGEST))
    assert store.has(DIGEST)
    assert b"".join(store.read(DIGEST, 7)) == DATA[7:]
    assert store.append(DIGEST, 0, b"again") == len(DATA)
    assert store.load() == {DIGEST}
    store.append("0" * 64, 0, b"something else")
    with pytest.raises(CorruptState, match="another checksum"):
        store.complete("0" * 64, store.part("0" * 64))
    assert store.size("0" * 64) == 0
    store.remove(DIGEST)
    assert not store.has(DIGEST)
    with pytest.raises(Unavailable):
        next(store.read(DIGEST, 0))
    with pytest.raises(Unavailable):
        store.complete(DIGEST, store.part(DIGEST))


def test_an_upload_and_a_fetch_of_one_bundle_do_not_write_into_each_other(tmp_path: Path) -> None:
    store = BundleStore(tmp_path)
    with store.fetched(DIGEST).open("ab") as fetching:
        fetching.write(DATA[:1000])
        fetching.flush()
        assert store.append(DIGEST, 0, DATA[:500]) == 500, "not continued at the position of the other one"
        store.append(DIGEST, 500, DATA[500:])
        store.complete(DIGEST, store.part(DIGEST))
        # The source still sends: it must not come behind what is complete.
        fetching.write(DATA[1000:])
    store.complete(DIGEST, store.fetched(DIGEST))
    assert b"".join(store.read(DIGEST, 0)) == DATA
    assert [each.name for each in tmp_path.iterdir()] == [DIGEST], "no part is left"


def test_damage_is_found_when_the_store_is_opened_and_parts_stay(tmp_path: Path) -> None:
    (tmp_path / DIGEST).write_bytes(DATA[:-1])
    (tmp_path / f"{DIGEST}.part").write_bytes(DATA[:7])
    (tmp_path / "something.else").write_bytes(b"")
    store = BundleStore(tmp_path)
    assert store.load() == frozenset()
    assert store.size(DIGEST) == 7
    assert (tmp_path / "something.else").exists()


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "ABC", DIGEST[:-1], f"{DIGEST}\n"])
def test_only_a_digest_is_the_name_of_a_file(tmp_path: Path, name: str) -> None:
    store = BundleStore(tmp_path)
    with pytest.raises(BadConfiguration):
        store.append(name, 0, b"x")
    with pytest.raises(BadConfiguration):
        store.has(name)


def test_more_than_a_bundle_may_have_is_not_taken(tmp_path: Path) -> None:
    store = BundleStore(tmp_path)
    with store.part(DIGEST).open("wb") as file:
        file.truncate(bundles.MOST_BYTES)
    with pytest.raises(BadConfiguration, match="larger than 256 MiB"):
        store.append(DIGEST, bundles.MOST_BYTES, b"x")


def test_the_newest_active_revision_is_led() -> None:
    new = JobRecord(revision(1, "c1"))
    assert effective(new) is None
    assert needs(new).active_code == ""
    first = structs.replace(new, activated=1)
    assert effective(first) is first
    upgraded = JobRecord(
        revision(3, "c3"), former=(revision(2, "c2"), revision(1, "c1")), settings={"a": "b"}, activated=1
    )
    led = effective(upgraded)
    assert led is not None
    assert (led.definition, led.former, led.settings) == (revision(1, "c1"), (), {})
    assert needs(upgraded).active_code == "c1"
    assert needs(upgraded).codes == {"c1", "c2", "c3"}
    done = structs.replace(upgraded, activated=3)
    assert effective(done) is done
    assert needs(done).active_code == "c3"
    ending = structs.replace(new, is_wanted=False)
    assert effective(ending) is ending, "a job that waits for code can be ended"
    localised = JobRecord(revision(1, ""))
    assert effective(localised) is localised
    assert not needs(localised).is_waiting


def test_what_runs_is_led_however_many_revisions_wait_for_their_code() -> None:
    record = JobRecord(revision(1, "c1"), activated=1)
    for number in range(2, 9):
        record = revisions.update(record, CONFIG, f"c{number}").record
    assert [each.revision for each in record.former] == [7, 6, 5, 4, 1]
    led = effective(record)
    assert led is not None
    assert led.definition == revision(1, "c1")
    assert needs(record).active_code == "c1"
    assert "c1" in needs(record).codes, "or it would be swept"
    spread = revisions.update(structs.replace(record, activated=8), CONFIG, "c9").record
    assert [each.revision for each in spread.former] == [8, 7, 6, 5], "it does not run any more"


def test_what_runs_keeps_its_live_keys_while_another_revision_waits_for_its_code() -> None:
    def asked(record: JobRecord) -> str:
        led = effective(record)
        assert led is not None
        return revisions.requested_settings(led)["job.container.count"]

    first = structs.replace(JobRecord(revision(1, "c1")), activated=1)
    more = {**CONFIG, "job.container.count": "3"}
    second = revisions.update(revisions.update(first, more, "c1").record, more, "c2").record
    assert asked(second) == "3"
    live = revisions.update(structs.replace(second, activated=2), {**more, "job.container.count": "4"}, "c2")
    assert asked(revisions.rollback(live.record, ())) == "4"


def test_a_job_whose_code_came_with_the_application_is_led_while_its_first_bundle_is_spread() -> None:
    record = revisions.update(JobRecord(revision(1, "")), CONFIG, "c2").record
    led = effective(record)
    assert led is not None
    assert led.definition == revision(1, "")
    assert needs(record).is_waiting
    assert needs(record).active_code == ""
    assert effective(structs.replace(record, activated=2)) == structs.replace(record, activated=2)


def test_how_many_and_how_long_is_the_jobs_own_configuration() -> None:
    def of(**keys: str) -> JobNeeds:
        config = {**CONFIG, **{name.replace("_", "."): value for name, value in keys.items()}}
        return needs(JobRecord(structs.replace(revision(1, "c1"), config=config)))

    assert (of().minimum, of().wait_ms) == (1, 60_000)
    assert of(code_min_replication_count="3").minimum == 3
    assert of(code_max_replication_wait_seconds="5").wait_ms == 5_000
    assert of(code_max_replication_wait_seconds="-1").wait_ms is None
    # A record that this version cannot read in full: its code is wanted all the same.
    assert of(no_such_key="1").code == "c1"


def view(**more: object) -> CodeView:
    return replace(CodeView("a", 30_000, 1_000), **more)  # type: ignore[arg-type]


def test_before_zookeeper_was_read_no_candidate_leads_and_nothing_is_done() -> None:
    assert rules.missing(view()) == (rules.UNKNOWN,)
    assert steps.plan(view(held=frozenset({"b1"}))) == ()


def test_live_holders_come_first_then_registrations_then_the_departed_and_they_take_turns() -> None:
    b, c, dead, gone = (BundleSource(each, "h", 1) for each in ("b", "c", "dead", "gone"))
    first = Directory(frozenset({"a", "b", "c"}), {"b1": (gone, dead)})
    then = Directory(frozenset({"a", "b", "c"}), {"b1": (dead, c, b)})
    seen = rules.learned(rules.learned(view(), first, 0), then, 1)
    assert rules.sources(seen, "b1") == (b, c, dead, gone)
    assert rules.sources(rules.failed(seen, "b1", "no", 2), "b1") == (c, b, dead, gone)
    back = rules.learned(seen, replace(then, sources={"b1": (gone,)}), 3)
    assert rules.sources(back, "b1")[0] == gone
    assert set(rules.sources(back, "b1")[1:]) == {b, c, dead}


def test_few_of_those_that_have_gone_are_asked_however_often_somebody_was_started_anew() -> None:
    seen = view()
    for life in range(1_000):
        directory = Directory(frozenset({"a", f"b{life}"}), {"b1": (BundleSource(f"b{life}", "h", life),)})
        seen = rules.learned(seen, directory, life)
    asked = [each.candidate for each in rules.sources(seen, "b1")]
    assert asked[:3] == ["b999", "b998", "b997"], "the latest first"
    assert len(asked) < 20


def test_a_fetch_that_failed_waits_longer_each_time_up_to_the_sync_time() -> None:
    directory = Directory(frozenset({"a"}), {"b1": ()})
    now, pauses = 0, []
    seen = rules.learned(view(), directory, now)
    for _ in range(10):
        (fetch,) = (each for each in steps.plan(seen) if isinstance(each, steps.Fetch))
        seen = rules.failed(steps.began(seen, fetch), "b1", "no", now)
        begun = now
        while not steps.plan(seen):
            now += 50
            seen = rules.ticked(seen, now)
        pauses.append(now - begun)
    assert pauses[:4] == [250, 500, 1_000, 2_000]
    assert pauses[-1] == 30_000


def test_the_last_traces_of_deleted_code_go_only_when_no_process_holds_it() -> None:
    def seen(*sources: BundleSource, leads: bool = True) -> tuple[steps.CodeStep, ...]:
        directory = Directory(frozenset({"a", "b"}), {"b1": sources}, deleted={"b1": 3})
        return steps.plan(rules.ticked(rules.learned(view(leads=leads), directory, 0), 1_000))

    assert seen() == (steps.Bury("b1", 3),)
    assert seen(BundleSource("b", "h", 1)) == ()
    assert seen(leads=False) == ()


def test_what_takes_long_and_is_not_waited_for_comes_last() -> None:
    me = BundleSource("a", "h", 1)
    waits = (JobNeeds("j", "run1", 1, "b2"),)
    directory = Directory(frozenset({"a"}), {"b1": (), "b2": (me,)}, waits, deleted={"b1": 3})
    seen = rules.ticked(rules.learned(view(leads=True, held=frozenset({"b2"})), directory, 0), 1_000)
    seen = replace(seen, published=frozenset({"b2"}))
    said = "1 of 1 candidates hold its code"
    assert steps.plan(seen) == (steps.Activate("j", "run1", 1, said), steps.Bury("b1", 3))


class DamagedFiles(NoWay):
    """A file system in which the bundle is damaged."""

    def fetch(self, bundle: str, sources: Sequence[BundleSource], part: Path) -> None:
        part.write_bytes(b"damaged in the file system")


class NoShell(NoWay):
    """A file system whose shell has gone, as while it is installed anew."""

    def fetch(self, bundle: str, sources: Sequence[BundleSource], part: Path) -> None:
        raise Unavailable("hadoop: No such file or directory")


def test_damage_in_one_place_does_not_hide_what_is_whole_in_another(tmp_path: Path) -> None:
    part = tmp_path / "part"
    peers = PeerCode(ssl.create_default_context)
    damaged = DamagedFiles()
    DistributorChain(peers, lambda _: DATA, damaged).fetch(DIGEST, (), part)
    assert part.read_bytes() == DATA
    part.unlink()
    DistributorChain(peers, lambda _: DATA, NoShell()).fetch(DIGEST, (), part)
    assert part.read_bytes() == DATA
    part.unlink()
    said = (
        f"bundle {DIGEST}: the data from the file system has another checksum; no known holder of bundle {DIGEST}; "
        f"bundle {DIGEST}: the data from ZooKeeper has another checksum"
    )
    with pytest.raises(Transient, match=f"^{said}$"):
        DistributorChain(peers, lambda _: b"here, too", damaged).fetch(DIGEST, (), part)
    assert not part.exists(), "nothing goes on from it"
    (tmp_path / bundles.shipped_name(DIGEST)).write_bytes(DATA)
    DistributorChain(peers, lambda _: b"here, too", damaged, tmp_path).fetch(DIGEST, (), part)
    assert part.read_bytes() == DATA, "YARN has shipped it"


def test_what_no_job_has_named_for_long_is_marked_by_the_leader() -> None:
    def marked(seen: CodeView, at_ms: int) -> list[steps.CodeStep]:
        found = steps.plan(rules.ticked(seen, at_ms))
        return [each for each in found if isinstance(each, steps.Condemn)]

    alone = Directory(frozenset({"a"}), {"b1": (BundleSource("a", "h", 1),)})
    seen = rules.learned(view(leads=True, held=frozenset({"b1"})), alone, 0)
    assert marked(seen, 999) == []
    assert marked(seen, 1_000) == [steps.Condemn("b1")]
    assert marked(replace(seen, leads=False), 1_000) == []
    assert marked(rules.uploaded(seen, "b1", 600), 1_500) == [], "somebody is about to name it"
    named = rules.learned(seen, replace(alone, jobs=(JobNeeds("j", "run1", 2, "", former={1: "b1"}),)), 500)
    assert marked(named, 9_000) == []
    forgotten = rules.learned(named, alone, 2_000)
    assert marked(forgotten, 2_999) == [], "its time begins anew"
    assert marked(forgotten, 3_000) == [steps.Condemn("b1")]
    assert marked(rules.learned(seen, replace(alone, deleted={"b1": 1}), 500), 9_000) == []


def test_what_is_in_the_way_of_a_jobs_code_is_reported_with_its_begin_and_without_figures_that_run() -> None:
    waits = JobNeeds("j", "run1", 1, "b1", minimum=2)
    seen = rules.led(
        rules.learned(view(), Directory(frozenset({"a"}), {"b1": ()}, (waits,)), 700), leads=True
    )
    told = {"j": rules.CodeTrouble("waiting until 2 candidates hold its code; 0 do", 700)}
    assert rules.code_troubles(seen) == told
    assert rules.code_troubles(rules.ticked(seen, 9_000)) == told
    gone = rules.learned(view(), Directory(frozenset({"a"}), {"b1": ()}, (replace(waits, activated=1),)), 700)
    assert rules.quarantined_jobs(rules.ticked(gone, 60_699)) == {}
    quarantined = {"j": rules.CodeTrouble("no live candidate holds its code b1", 700)}
    assert rules.quarantined_jobs(rules.ticked(gone, 60_700)) == quarantined
    assert rules.quarantined_jobs(rules.ticked(gone, 90_000)) == quarantined
