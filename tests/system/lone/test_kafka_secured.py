"""A broker that refuses unknown clients, and allows only what was allowed: every client of a job gets through."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from appmaster.adapters.kafka import EventLog, Topics, fence, fence_job, read_events
from appmaster.cli.launch.checks import check_topics
from appmaster.cli.shared.jobfile import JobFile
from appmaster.config import cluster_config
from appmaster.eventlog.entries import EntryKind, LogEntry, entry_document
from standby.cluster import dump
from standby.config import kafka_settings, parse
from standby.errors import BadConfiguration, Unavailable
from standby.shared.model import Phase, Role
from standby.shared.naming import transactional_id
from tests.fakes.authorities import certificate_in, write_certificate
from tests.fakes.token_server import AUDIENCE, TokenServer
from tests.kernel_lab import Lab
from tests.patience import PATIENCE_SECONDS, TRY_SECONDS, soon
from tests.servers.secured import SecuredBroker

USER, PASSWORD = "alice", "a-s3cret-of-alice"

#: How long tokens last: of a job like any other, and of one whose clients have to renew theirs all the time.
_TOKEN_SECONDS = {"dora": 3_600, "erin": 4}


@dataclasses.dataclass(frozen=True)
class Way:
    """A way to prove who one is: the broker, the keys that a job needs for it, and who it is then."""

    broker: SecuredBroker
    keys: Mapping[str, str]
    principal: str


@pytest.fixture(scope="module")
def tokens() -> Iterator[TokenServer]:
    with TokenServer(PASSWORD, _TOKEN_SECONDS) as server:
        yield server


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory, tokens: TokenServer) -> Iterator[Mapping[str, Way]]:
    directory = tmp_path_factory.mktemp("secured")
    pair = write_certificate(directory, "broker")
    authority = directory / "ca.pem"
    authority.write_bytes(pair.read_bytes()[pair.read_bytes().index(b"-----BEGIN CERT") :])
    mine = write_certificate(directory, "bob", pair)
    password = directory / "password"
    password.touch(0o600)
    password.write_text(f"{PASSWORD}\n", encoding="utf-8")
    signed = (tokens.keys_url, AUDIENCE)
    with SecuredBroker(directory, pair, authority, {USER: PASSWORD}, signed) as broker:
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        admin = AdminClient({"bootstrap.servers": broker.plain})
        altered = admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("carol", scram, PASSWORD.encode())]
        )
        altered["carol"].result(PATIENCE_SECONDS)

        def by_password(mechanism: str, user: str) -> Way:
            keys = {
                "kafka.bootstrap.servers": broker.bootstrap,
                "kafka.security.protocol": "SASL_SSL",
                "kafka.ssl.ca.location": str(authority),
                "kafka.sasl.mechanism": mechanism,
                "kafka.sasl.username": user,
                "kafka.sasl.password.file": str(password),
            }
            return Way(broker, keys, f"User:{user}")

        by_certificate = {
            "kafka.bootstrap.servers": broker.mutual,
            "kafka.security.protocol": "SSL",
            "kafka.ssl.ca.location": str(authority),
            "kafka.ssl.certificate.location": str(mine),
            "kafka.ssl.key.location": str(mine),
        }

        def by_token(client: str) -> Way:
            keys = {
                "kafka.bootstrap.servers": broker.tokens,
                "kafka.security.protocol": "SASL_SSL",
                "kafka.ssl.ca.location": str(authority),
                "kafka.sasl.mechanism": "OAUTHBEARER",
                "kafka.sasl.oauthbearer.method": "oidc",
                "kafka.sasl.oauthbearer.client.id": client,
                "kafka.sasl.oauthbearer.client.secret.file": str(password),
                "kafka.sasl.oauthbearer.token.endpoint.url": tokens.token_url,
                "kafka.sasl.oauthbearer.scope": "all",
            }
            return Way(broker, keys, f"User:{client}")

        yield {
            "OAUTHBEARER": by_token("dora"),
            "OAUTHBEARER, short": by_token("erin"),
            "PLAIN": by_password("PLAIN", USER),
            "SCRAM-SHA-512": by_password("SCRAM-SHA-512", "carol"),
            "mutual TLS": Way(broker, by_certificate, "User:CN=bob"),
        }


#: A kind of thing, its name or the beginning of it, and what may be done with it.
Right = tuple[ResourceType, str, AclOperation]


def of_containers(lab: Lab) -> dict[str, Right]:
    """Return the rights that docs/security.md says a job's containers need, by name."""
    job = lab.definition
    return {
        "read the input": (ResourceType.TOPIC, lab.inputs[0], AclOperation.READ),
        "read the changelog": (ResourceType.TOPIC, job.changelog, AclOperation.READ),
        "write the changelog": (ResourceType.TOPIC, job.changelog, AclOperation.WRITE),
        "write the output": (ResourceType.TOPIC, job.config["task.outputs"], AclOperation.WRITE),
        "read the group": (ResourceType.GROUP, job.group, AclOperation.READ),
        "write by transactional id": (
            ResourceType.TRANSACTIONAL_ID,
            transactional_id("lab", lab.task_ids[0])[:-1],
            AclOperation.WRITE,
        ),
    }


def allow(lab: Lab, principal: str, rights: Iterable[Right]) -> None:
    bindings = [
        AclBinding(kind, name, ResourcePatternType.PREFIXED, principal, "*", what, AclPermissionType.ALLOW)
        for kind, name, what in rights
    ]
    for future in lab.admin.create_acls(bindings).values():
        future.result(PATIENCE_SECONDS)
    # The controller has them; that the broker has heard of them there is no event for.
    mine = AclBindingFilter(
        ResourceType.ANY,
        None,  # type: ignore[arg-type]
        ResourcePatternType.ANY,
        principal,
        None,  # type: ignore[arg-type]
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    soon(lambda: set(bindings) <= set(lab.admin.describe_acls(mine).result(PATIENCE_SECONDS)), "the rights")


def lab_of(way: Way, directory: Path) -> Lab:
    """Return a job whose own clients have to log in; the judge reads past the guard."""
    return Lab(way.broker.plain, directory, 2, "compact", **way.keys)


@pytest.fixture
def lab(ways: Mapping[str, Way], tmp_path: Path) -> Lab:
    way = ways["PLAIN"]
    lab = lab_of(way, tmp_path)
    allow(lab, way.principal, of_containers(lab).values())
    return lab


@pytest.mark.parametrize("name", ["SCRAM-SHA-512", "OAUTHBEARER", "mutual TLS"])
def test_kernel_gets_through_everywhere_with_the_documented_rights(
    ways: Mapping[str, Way], name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By PLAIN a whole job does in test_pool_secured.py."""
    caplog.set_level(logging.DEBUG)
    lab = lab_of(ways[name], tmp_path)
    allow(lab, ways[name].principal, of_containers(lab).values())
    with lab.local("host-a") as active, lab.local("host-b") as standby:
        lab.promote(active, 0, 1)
        standby.want(1, Role.STANDBY, 1)
        lab.produce(300)
        active.await_processed()
        standby.await_all(lambda each: each.phase is Phase.TAILING and each.lag_records == 0)
        lab.promote(standby, 1, 2)
        lab.produce(100)
        standby.await_processed()
    lab.assert_exact()
    assert PASSWORD not in caplog.text


#: The right to write to the output is missing, and that to read it is there.
READ_ONLY = "write the output, which may be read"

#: Right → what is said where it is missing, and by what.
NAMED = {
    "read the input": ("describing {}-in: TOPIC_AUTHORIZATION_FAILED", Role.ACTIVE),
    "read the changelog": ("reading {}-changelog .*: TOPIC_AUTHORIZATION_FAILED", Role.STANDBY),
    "write the changelog": ("Kafka refuses it: no right to write to {}-changelog", Role.ACTIVE),
    "write the output": ("describing {}-out: TOPIC_AUTHORIZATION_FAILED", Role.ACTIVE),
    READ_ONLY: ("Kafka refuses it: .*opic.* authorization failed", Role.ACTIVE),
    "read the group": ("as group {}-group: GROUP_AUTHORIZATION_FAILED", Role.ACTIVE),
    "write by transactional id": ("Kafka refuses it: .* Transactional Id authorization failed", Role.ACTIVE),
}


@pytest.mark.parametrize("missing", NAMED)
def test_right_that_is_missing_is_named(ways: Mapping[str, Way], missing: str, tmp_path: Path) -> None:
    way = ways["mutual TLS"]
    lab = lab_of(way, tmp_path)
    rights = of_containers(lab)
    kind, output, _ = rights["write the output"]
    if missing == READ_ONLY:
        rights["write the output"] = (kind, output, AclOperation.READ)
    else:
        del rights[missing]
    allow(lab, way.principal, rights.values())
    lab.name(0, 1)
    told, role = NAMED[missing]
    with lab.local("host-a") as container:
        container.want(0, role, 1)
        lab.produce(100)
        container.await_all(lambda each: each.phase is Phase.FAILED and each.detail != "")
        for each in container.statuses().values():
            assert re.search(told.format(lab.definition.name), each.detail), each.detail


def test_tools_and_event_log_log_in(ways: Mapping[str, Way], lab: Lab) -> None:
    settings = kafka_settings(parse(lab.definition.config))
    topics = Topics(settings)
    name = f"{lab.definition.name}-events"
    # Of the submitter, and of the masters.
    events = [
        (ResourceType.TOPIC, name, each)
        for each in (AclOperation.CREATE, AclOperation.WRITE, AclOperation.READ)
    ]
    reader = (ResourceType.GROUP, "standfast-events-reader", AclOperation.READ)
    allow(lab, ways["PLAIN"].principal, [*events, reader])
    topics.create(name, 1, 1, {})
    assert topics.partitions()[lab.inputs[0]] == lab.tasks
    log = EventLog(settings, name)
    entry = entry_document(LogEntry(EntryKind.TASKS_FENCED), 0, 1)
    log.append(entry)
    log.close()
    assert list(read_events(settings, name, follow=False, stop=lambda: False)) == [entry]
    fence_job("lab", lab.definition)


def test_topic_that_may_not_be_described_is_not_taken_for_a_missing_one(
    ways: Mapping[str, Way], tmp_path: Path
) -> None:
    way = ways["mutual TLS"]
    lab = lab_of(way, tmp_path)
    flat = lab.definition.config
    topics = Topics(kafka_settings(parse(flat)))
    job = JobFile(tmp_path / "job.yaml", flat, parse(flat))
    with pytest.raises(
        Unavailable, match=f"topic {lab.inputs[0]} cannot be described: .*authorization failed"
    ):
        check_topics(job, topics)
    allow(lab, way.principal, of_containers(lab).values())
    assert check_topics(job, topics) == lab.tasks
    with pytest.raises(BadConfiguration, match=f"topic {lab.inputs[0]}-absent does not exist"):
        check_topics(
            dataclasses.replace(job, config=parse({**flat, "task.inputs": f"{lab.inputs[0]}-absent"})), topics
        )


def test_password_is_in_nothing_that_leaves_the_host(lab: Lab) -> None:
    assert PASSWORD.encode() not in msgspec.json.encode(lab.definition)
    assert PASSWORD.encode() not in dump(cluster_config(parse(lab.definition.config), 1))


def test_a_refused_login_is_explained_by_tools_and_replicas_without_a_secret(
    ways: Mapping[str, Way], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    other = str(certificate_in(write_certificate(tmp_path, "other")))
    password, secret = "kafka.sasl.password", "kafka.sasl.oauthbearer.client.secret"
    away = {"kafka.sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token"}
    cases = [
        (without(ways["PLAIN"], f"{password}.file") | {password: "wr0ng"}, "Invalid username or password"),
        (
            without(ways["OAUTHBEARER"], f"{secret}.file") | {secret: "wr0ng"},
            "OAUTHBEARER token.*the secret is wrong",
        ),
        (dict(ways["OAUTHBEARER"].keys) | away, "OAUTHBEARER token.*connect to 127.0.0.1:1"),
        (dict(ways["mutual TLS"].keys) | {"kafka.ssl.ca.location": other}, "certificate verify failed"),
    ]
    labs = [
        Lab(ways["PLAIN"].broker.plain, tmp_path / str(number), 1, "compact", **keys)
        for number, (keys, _) in enumerate(cases)
    ]
    questions = [
        (ask, lab, why)
        for lab, (_, why) in zip(labs, cases, strict=True)
        for ask in (said_by_topics, said_by_events, said_by_a_fence, said_by_a_copy)
    ]
    # Each takes as long as one waits for an answer that does not come.
    with ThreadPoolExecutor(len(questions)) as pool:
        answers = [pool.submit(ask, lab, why) for ask, lab, why in questions]
    for (ask, _, why), answer in zip(questions, answers, strict=True):
        said = answer.result()
        assert re.search(why, said), (ask, said)
        assert "wr0ng" not in said
    assert "wr0ng" not in caplog.text


def without(way: Way, key: str) -> dict[str, str]:
    return {name: value for name, value in way.keys.items() if name != key}


def said_by_topics(lab: Lab, _: str) -> str:
    with pytest.raises(Unavailable) as caught:
        Topics(kafka_settings(parse(lab.definition.config))).partitions(timeout_seconds=TRY_SECONDS)
    return str(caught.value)


def said_by_events(lab: Lab, _: str) -> str:
    settings = kafka_settings(parse(lab.definition.config))
    with pytest.raises(Unavailable) as caught:
        next(read_events(settings, "events", follow=False, stop=lambda: False))
    return str(caught.value)


def said_by_a_fence(lab: Lab, _: str) -> str:
    with pytest.raises(Unavailable) as caught:
        fence(parse(lab.definition.config), ("id",), timeout_seconds=TRY_SECONDS)
    return str(caught.value)


def said_by_a_copy(lab: Lab, why: str) -> str:
    lab.directory.mkdir()
    with lab.local("host-a") as container:
        lab.promote(container, 0, 1)
        container.await_all(lambda each: re.search(why, each.detail) is not None)
        return " ".join(each.detail for each in container.statuses().values())


def test_tokens_are_renewed_while_records_flow(
    ways: Mapping[str, Way], tokens: TokenServer, tmp_path: Path
) -> None:
    way = ways["OAUTHBEARER, short"]
    lab = lab_of(way, tmp_path)
    allow(lab, way.principal, of_containers(lab).values())
    with lab.local("host-a") as active:
        lab.promote(active, 0, 1)
        lab.produce(50)
        active.await_processed()
        # Each client renews its own: those of all others have expired when the last one's is the third.
        given = tokens.given["erin"]
        soon(lambda: tokens.given["erin"] > given, "tokens are renewed")
        lab.produce(50)
        active.await_processed()
    lab.assert_exact()
