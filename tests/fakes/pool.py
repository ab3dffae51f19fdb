"""A pool in memory: what the leader reads and writes of it, and what its processes do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from appmaster.leadership.ports import PoolMember
from standby.errors import BadConfiguration, Fenced, Transient
from standby.shared.model import NodeOffer
from standby.shared.naming import member_id
from standby.shared.records import MemberRecord
from standby.shared.wire import PROTOCOL
from standby.threads.worker import do_nothing


def waiting(
    host: str, unique: str, *, protocol: int = PROTOCOL, offer: NodeOffer | None = None
) -> MemberRecord:
    """Return the record of a process that waits."""
    return MemberRecord(member_id(host, unique), host, 7, protocol, "0.1.0", offer=offer or NodeOffer())


@dataclass
class MemoryPool:
    """The records of a pool, and one watch on which of them there are."""

    epoch: int = 1
    members: dict[str, PoolMember] = field(default_factory=dict)
    is_deposed: bool = False
    is_away: bool = False
    is_closed: bool = False
    #: How many writes are done although the answer is lost.
    lost_answers: int = 0
    #: What happens while the leader reads.
    meanwhile: Callable[[], object] = do_nothing
    _watch: Callable[[], None] | None = None

    # ---- the leader ----

    def names(self, watch: Callable[[], None]) -> frozenset[str]:
        """Return the registered processes, and leave a watch."""
        self._answer()
        self._watch = watch
        return frozenset(self.members)

    def read(self, names: Sequence[str]) -> Mapping[str, PoolMember]:
        """Return those that are there."""
        self._answer()
        self.meanwhile()
        return {each: self.members[each] for each in names if each in self.members}

    def write(self, member: PoolMember) -> bool:
        """Write over a version."""
        self._answer()
        if self.is_deposed:
            raise Fenced("another leader has taken over")
        present = self.members.get(member.record.container)
        if present is None or present.version != member.version:
            return False
        self.members[member.record.container] = PoolMember(member.record, member.version + 1)
        if self.lost_answers:
            self.lost_answers -= 1
            raise Transient("the answer is lost")
        return True

    def _answer(self) -> None:
        if self.is_away:
            raise Transient("ZooKeeper does not answer")
        if self.is_closed:
            raise BadConfiguration("nodes are closed to these credentials")

    # ---- processes ----

    def join(self, record: MemberRecord) -> str:
        """Register a process; return its id."""
        self.members[record.container] = PoolMember(record, 0)
        self._changed()
        return record.container

    def leave(self, name: str) -> None:
        """End the session of a process."""
        del self.members[name]
        self._changed()

    def rejoin(self, name: str) -> None:
        """Have a process register again, unnoticed, as after the end of its session: with its claim."""
        self.members[name] = PoolMember(replace(self.members[name].record), 0)

    def end_session(self, name: str) -> MemberRecord:
        """End the session of a process that lives, unnoticed; return what it registers again with."""
        return self.members.pop(name).record

    def _changed(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch()
