"""Whose the nodes are, on a real ZooKeeper: closed to all but the sources of the cluster's credentials."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NoAuthError
from kazoo.security import Permissions, make_digest_acl

from appmaster.adapters.credentials.keyring import VARIABLE
from appmaster.adapters.zookeeper.changes import ZooKeeperChanges
from appmaster.adapters.zookeeper.code import ZooKeeperCodeDirectory
from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.adapters.zookeeper.tree import ZooKeeperTree
from appmaster.cli.main import main
from appmaster.planning.state.actions import RecordWrite
from appmaster.records import CandidateRecord, CellRecord, ChangeRecord, JobRecord, StatusRecord, decode
from standby.adapters.zookeeper.access import (
    AS_IT_IS,
    Access,
    container_access,
    container_secret,
    make_client,
    owner_access,
    owner_digest,
)
from standby.adapters.zookeeper.membership import ZooKeeperMembership
from standby.adapters.zookeeper.reader import ZooKeeperReader
from standby.code import bundles
from standby.control.events import ControlEvent, Registered, SessionConnected
from standby.errors import BadConfiguration, Transient
from standby.shared import naming
from standby.shared.model import TaskId, TaskRecord
from standby.shared.peers import BundleSource
from standby.shared.records import ContainerRecord, ControllerRecord
from standby.shared.wire import JobDefinition
from standby.threads.inbox import Inbox
from tests.fakes.certificates import user_directory
from tests.fakes.zookeeper import LoneZooKeeper
from tests.patience import PATIENCE_SECONDS

SECRET, OTHER_SECRET = "a secret", "another secret"
CLOSED, OPEN = owner_access(SECRET, is_closed=True), owner_access(SECRET, is_closed=False)
CONTAINER = container_access(container_secret(SECRET), owner_digest(SECRET), is_closed=True)

#: What every command has, and a submit that does not say: the tree as it is, and a new one closed.
COMMAND = owner_access(SECRET)

JOB = JobRecord(
    JobDefinition("job", "run1", {"job.name": "job", "kafka.sasl.password": "tell nobody"}, "c", "g", 1)
)
TASK = TaskRecord(
    TaskId("job", "main", 0), active=0, epoch=1, placed={0: "c1"}, hosts={}, in_sync=(0,), decision="1-1"
)

#: Where a cluster lies that is not to be at the top.
CHROOT = "/apps/sf"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoneZooKeeper]:
    """A server of the module's own: what creates what is above the trees of clusters matters here."""
    with LoneZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def stranger(client: KazooClient) -> Any:
    return client


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def submit(session: ZooKeeper) -> None:
    """Do what a submit does."""
    session.tree.make_way()
    session.tree.prepare()
    assert session.cells.claim(1, CellRecord("application_1", "me"))
    session.changes.submit(session.changes.first_submit(JOB.definition))


def own_keyring(directory: Path, cluster: str, secret: str) -> Path:
    """Return the keyring of the owner of ``secret``, in ``directory`` as STANDFAST_CREDENTIALS."""
    found = user_directory(directory, cluster) / cluster
    (found / "zookeeper.secret").write_text(secret)
    return found


def rings(cluster: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Access]:
    """Return where the former credentials are, and the access of the new ones, which commands have from now on."""
    former = own_keyring(directory / "former", cluster, SECRET)
    for each in (cluster, f"{cluster}-open"):
        own_keyring(directory / "new", each, OTHER_SECRET)
    monkeypatch.setenv(VARIABLE, str(directory / "new"))
    return former, owner_access(OTHER_SECRET)


def nodes_of(client: Any, path: str) -> Iterator[str]:
    yield path
    for each in client.get_children(path):
        yield from nodes_of(client, f"{path}/{each}")


def test_every_node_that_any_part_creates_is_closed_to_others(
    server: LoneZooKeeper, stranger: Any, name: str
) -> None:
    container = make_client(server.connect, 4_000, CONTAINER)
    inbox: Inbox[ControlEvent] = Inbox()
    record = ContainerRecord("container_1", "s", 1, "127.0.0.11", 1, 2, 3, 1, "0.1")
    membership = ZooKeeperMembership(container, name, record, inbox.post)
    with ZooKeeper(server.connect, name, access=CLOSED) as user:
        submit(user)
    with ZooKeeper(server.connect, name, access=COMMAND) as candidate:
        candidate.registry.register(CandidateRecord("a", "127.0.0.11", 1, 2, 1, 3, "container_0", 0, "0.1"))
        assert candidate.election.lead(ControllerRecord("a", "127.0.0.11", 1, 0)) == 1
        assert candidate.records.write_tasks([RecordWrite(TASK, None)]) is not None
        candidate.records.write_status("job", StatusRecord("deployed"))
        requests = ZooKeeperChanges(candidate.client, name)
        requests.put("r0", ChangeRecord("drain", {"hosts": ["h1"], "reason": "why"}))
        requests.settle("r0", 1)
        candidate.code.put(bundles.digest_of(b"code"), b"code")
        directory = ZooKeeperCodeDirectory(candidate.client, name)
        directory.announce("b" * 64, BundleSource("a", "127.0.0.11", 4))
        requests.put("r1", ChangeRecord("undeploy", {"job": "job"}))
        membership.start()
        while not any(isinstance(each, SessionConnected) for each in inbox.drain(10)):
            pass
        membership.register()
        while not any(isinstance(each, Registered) for each in inbox.drain(10)):
            pass
        assert ZooKeeperReader(container, name).read(TASK.task) == TASK
        found = list(nodes_of(candidate.client, naming.cluster_path(name)))
        assert naming.container_path(name, "container_1") in found
        assert f"{naming.task_path(name, TASK.task)}" in found
        lists = {path: candidate.client.get_acls(path)[0] for path in found}
        assert {path: each for path, each in lists.items() if each != CLOSED.list_for(path)} == {}
        membership.leave(PATIENCE_SECONDS)
        container.close()
        for each in found[:3]:
            with pytest.raises(NoAuthError):
                stranger.get(each)
        for mine in ("jobs/mine", "changes/mine", "candidates/mine", "containers/mine"):
            with pytest.raises(NoAuthError):
                stranger.create(f"{naming.cluster_path(name)}/{mine}", b"{}")
        # Neither the leader's place nor the number that all writes are checked against.
        for path in (naming.controller_path(name), naming.controller_epoch_path(name)):
            with pytest.raises(NoAuthError):
                stranger.set(path, b"{}")
            with pytest.raises(NoAuthError):
                stranger.delete(path)
        candidate.jobs.delete("job")
        candidate.tree.drop()
        assert not candidate.tree.exists(), "the root of all clusters lets its owner remove it"


def test_other_credentials_are_refused_with_the_reason_at_once(server: LoneZooKeeper, name: str) -> None:
    with ZooKeeper(server.connect, name, access=CLOSED) as user:
        submit(user)
    for access in (AS_IT_IS, owner_access(OTHER_SECRET), owner_access(OTHER_SECRET, is_closed=True)):
        session = ZooKeeper(server.connect, name, access=access)
        with pytest.raises(BadConfiguration, match=f"{name} in ZooKeeper is closed to these credentials"):
            session.connect()
        assert not session.client.connected, "nothing stays open"


def test_each_user_has_a_tree_of_his_own_side_by_side(server: LoneZooKeeper, name: str) -> None:
    other = owner_access(OTHER_SECRET, is_closed=True)
    with (
        ZooKeeper(server.connect, f"{name}-1", access=CLOSED) as mine,
        ZooKeeper(server.connect, f"{name}-2", access=other) as yours,
    ):
        submit(mine)
        submit(yours)
        assert {f"{name}-1", f"{name}-2"} <= set(yours.registry.clusters())
        with pytest.raises(NoAuthError):
            yours.client.get(naming.job_path(f"{name}-1", "job"))


class BreaksOff:
    """A session that loses its connection when it has changed the lists of so many nodes."""

    def __init__(self, client: Any, nodes: int) -> None:
        self._client = client
        self._left = nodes

    def set_acls_async(self, *arguments: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise ConnectionLoss
        return self._client.set_acls_async(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def test_what_broke_off_is_done_by_the_same_command_again(
    server: LoneZooKeeper, stranger: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    former, new = rings(name, tmp_path, monkeypatch)
    with ZooKeeper(server.connect, name, access=OPEN) as before:
        submit(before)
    with ZooKeeper(server.connect, name, access=COMMAND) as user:
        with pytest.raises(Transient):
            ZooKeeperTree(BreaksOff(user.client, 3), name, COMMAND).protect()
        everything = list(nodes_of(user.client, naming.cluster_path(name)))
        assert user.tree.protect() == len(everything)
    for each in everything:
        with pytest.raises(NoAuthError):
            stranger.set(each, b"")
    with ZooKeeper(server.connect, name, access=COMMAND) as user:
        user.tree.prove(new)
        with pytest.raises(Transient):
            ZooKeeperTree(BreaksOff(user.client, 3), name, COMMAND).hand_over(new)
    assert main(["rekey", name, "--former", str(former), "--zookeeper", server.connect]) == 0
    with ZooKeeper(server.connect, name, access=new) as user:
        lists = {
            each: user.client.get_acls(each)[0] for each in nodes_of(user.client, naming.cluster_path(name))
        }
    assert {path: each for path, each in lists.items() if each != new.list_for(path)} == {}
    assert set(lists) == set(everything)


def test_an_open_tree_is_closed_by_protect_and_not_opened_again(
    server: LoneZooKeeper,
    stranger: Any,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    own_keyring(tmp_path, name, SECRET)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    protect = ["protect", "job", "--cluster", name, "--zookeeper", server.connect]
    assert main(protect) == 2, "there is no such cluster"
    with ZooKeeper(server.connect, name, access=OPEN) as before:
        submit(before)
        before.code.put(bundles.digest_of(b"code"), b"code")
        before.registry.register(CandidateRecord("a", "127.0.0.11", 1, 2, 1, 3, "container_0", 0, "0.1"))
        assert main(protect) == 1, "what its processes create would stay open"
        assert f"a of {name} runs" in capsys.readouterr().err
    ZooKeeperChanges(stranger, name).put("r1", ChangeRecord("update", {"job": "job"}))
    everything = list(nodes_of(stranger, naming.cluster_path(name)))
    assert main(protect) == 0
    assert "its jobs are job: delete what is not yours" in capsys.readouterr().err
    for each in everything:
        with pytest.raises(NoAuthError):
            stranger.set(each, b"")
    with ZooKeeper(server.connect, name, access=COMMAND) as user:
        assert not user.tree.is_open
        data, _ = user.client.get(naming.change_path(name, "r1"))
        left = decode(data, "r1", ChangeRecord)
        assert left.state != "queued", "what a stranger may have asked for is not made"
    assert main(protect) == 0
    assert "is closed to others already" in capsys.readouterr().err
    with pytest.raises(BadConfiguration, match=r"zookeeper\.acl: open, but the tree of cluster"):
        ZooKeeper(server.connect, name, access=OPEN).connect()


def test_a_new_tree_is_closed_by_default(server: LoneZooKeeper, stranger: Any, name: str) -> None:
    with ZooKeeper(server.connect, name, access=COMMAND) as user:
        assert not user.tree.is_open
        submit(user)
        assert user.tree.is_closed
    with pytest.raises(BadConfiguration, match="closed to these credentials"):
        ZooKeeperChanges(stranger, name).put("r1", ChangeRecord("update", {"job": "job"}))
    with pytest.raises(NoAuthError):
        stranger.get(naming.job_path(name, "job"))
    assert not any(each.perms & Permissions.ADMIN for each in stranger.get_acls(naming.ROOT)[0])


def test_open_remains_open_for_clients_with_any_credentials(
    server: LoneZooKeeper, stranger: Any, name: str
) -> None:
    with ZooKeeper(server.connect, name, access=OPEN) as before:
        submit(before)
    with ZooKeeper(server.connect, name, access=COMMAND) as session:
        ZooKeeperChanges(session.client, name).put("r1", ChangeRecord("undeploy", {"job": "job"}))
    assert stranger.get(naming.change_path(name, "r1"))


def test_a_closed_tree_is_given_to_new_credentials_once_nothing_runs(
    server: LoneZooKeeper, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    former, _ = rings(name, tmp_path, monkeypatch)
    rekey = ["rekey", name, "--former", str(former), "--zookeeper", server.connect]
    assert main(rekey) == 2, "there is no such cluster"
    with ZooKeeper(server.connect, f"{name}-open", access=OPEN) as user:
        submit(user)
        assert main(["rekey", f"{name}-open", *rekey[2:]]) == 2, "there is nothing to give"
        assert "is open to everybody" in capsys.readouterr().err
        assert user.client.get_acls(naming.cluster_path(f"{name}-open"))[0][0].id.scheme == "world"
    with ZooKeeper(server.connect, name, access=CLOSED) as user:
        submit(user)
        user.registry.register(CandidateRecord("a", "127.0.0.11", 1, 2, 1, 3, "container_0", 0, "0.1"))
        assert main(rekey) == 1
        assert "a of" in capsys.readouterr().err
    assert main(rekey) == 0
    with ZooKeeper(server.connect, name, access=owner_access(OTHER_SECRET)) as user:
        assert user.jobs.names() == ("job",)
        assert user.jobs.read("job") == JOB
    assert main(rekey) == 2, "the former credentials do not fit any more"


@pytest.mark.parametrize("access", [CLOSED, OPEN], ids=["closed", "open"])
def test_path_of_the_servers_is_made_and_open_to_others(server: LoneZooKeeper, access: Access) -> None:
    chroot = f"{CHROOT}-{access.is_closed}"
    with ZooKeeper(server.connect + chroot, "job", access=access) as mine:
        assert not mine.tree.exists()
        assert mine.registry.clusters() == ()
        mine.tree.make_way()
        mine.tree.prepare()
        for number in (1, 2):
            record = CandidateRecord(f"c{number}", "h1", 1, 2, 1, 3, f"container_{number}", 0, "0.1")
            mine.registry.register(record)
        # Many are read with one request, which kazoo does not make itself.
        assert [each.candidate for each in mine.registry.candidates()] == ["c1", "c2"]
    top = server.client()
    try:
        # Of a closed tree only the name is shown.
        assert top.get_children(f"{chroot}{naming.ROOT}") == ["job"]
        for path in (chroot, "/apps"):
            ((acl,), _) = top.get_acls(path)
            assert (acl.id.scheme, acl.perms) == ("world", Permissions.ALL)
        top.create("/apps/of-others")
        top.delete("/apps/of-others")
    finally:
        top.stop()
        top.close()


def test_path_that_must_not_be_made_is_reported_with_the_remedy(server: LoneZooKeeper) -> None:
    top = server.client()
    try:
        top.create("/closed", acl=[make_digest_acl("somebody", "else", all=True)])
    finally:
        top.stop()
        top.close()
    said = "/closed/sf does not exist, and its parent is closed"
    with (
        ZooKeeper(f"{server.connect}/closed/sf", "job", access=CLOSED) as mine,
        pytest.raises(BadConfiguration, match=said),
    ):
        mine.tree.make_way()
