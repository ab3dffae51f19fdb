"""Looks up a key in the tasks of a job: which containers to ask, and which answers count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from appmaster.api.snapshot import job_in, tasks_in
from standby.errors import Transient
from standby.shared.model import Role
from standby.shared.peers import PeerAddress

#: Containers that are asked at the same time.
_THREADS: Final = 16

#: A replica's answer, as JSON (`standby.process.lookup`), and the ``container`` it is in.
SearchAnswer = dict[str, Any]

#: Asks a container: address, job, store, parameters. Raises `Transient` if it does not answer.
LookUp = Callable[[PeerAddress, str, str, Mapping[str, str]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class WantedKey:
    """The key to look up, and the tasks to look in."""

    job: str
    store: str
    key: bytes
    partitions: frozenset[int]
    role: Role
    max_lag_ms: int | None

    def query(self) -> dict[str, str]:
        """Return the parameters of the question to a container."""
        query = {"hex": self.key.hex(), "role": self.role.value}
        if len(self.partitions) == 1:
            query["partition"] = str(next(iter(self.partitions)))
        if self.max_lag_ms is not None:
            query["max_lag_ms"] = str(self.max_lag_ms)
        return query


@dataclass
class Search:
    """Asks until every task has answered, or one of them has the key.

    An active's answer counts if it is the active, at its epoch, according to what the leader said *before* the
    question: a former active that was cut off still answers. The copy that the leader names has, at that moment, every
    commit there is, because a successor claims only after the record names it. What a successor commits between the
    leader's answer and the replica's is concurrent with the question, and may or may not be in the answer. A standby's
    answer says how old it may be.
    """

    wanted: WantedKey
    status: Callable[[], Mapping[str, Any]]
    """Returns the leader's present snapshot."""
    containers: Callable[[], Iterable[PeerAddress]]
    """Returns the registered ones."""
    look_up: LookUp
    _answers: dict[int, SearchAnswer] = field(default_factory=dict)
    _missing: dict[int, str] = field(default_factory=dict)

    def answers(self) -> list[SearchAnswer]:
        """Return the answers that have the key; if none has, the answer of every task."""
        answers = [answer for _, answer in sorted(self._answers.items())]
        return [each for each in answers if each["found"]] or answers

    def complaint(self) -> str:
        """Return which tasks did not answer, and why."""
        return "; ".join(f"task {partition}: {why}" for partition, why in sorted(self._missing.items()))

    def ask(self) -> bool:
        """Ask the tasks that have not answered yet; return whether there is nothing more to ask.

        Raises `Unavailable` if there is no leader.
        """
        wanted = self.wanted
        self._missing = dict.fromkeys(wanted.partitions - set(self._answers), "")
        status = self.status()
        holders = self._holders(status)
        addresses = {each.container: each for each in self.containers()}
        said: list[SearchAnswer] = []
        with ThreadPoolExecutor(max_workers=_THREADS) as pool:
            asked = {
                container: pool.submit(
                    self.look_up, addresses[container], wanted.job, wanted.store, wanted.query()
                )
                for container in holders
                if container in addresses
            }
        for container, partitions in holders.items():
            if container not in asked:
                self._excuse(partitions, f"{container} is not registered")
                continue
            try:
                body = asked[container].result()
            except Transient as error:
                self._excuse(partitions, str(error))
                continue
            for each in body["declined"]:
                if each["partition"] in partitions:
                    self._excuse((each["partition"],), f"copy {each['copy']} in {container}: {each['why']}")
            said += [
                {**each, "container": container}
                for each in body["answers"]
                if each["partition"] in partitions
            ]
        self._believe(said, status)
        self._missing = {
            partition: why or f"it has no {wanted.role.value} copy now"
            for partition, why in self._missing.items()
            if partition not in self._answers
        }
        return not self._missing or any(each["found"] for each in self._answers.values())

    def _holders(self, status: Mapping[str, Any]) -> dict[str, list[int]]:
        """Return container → tasks to ask there."""
        holders: dict[str, list[int]] = {}
        for task in tasks_in(status, self.wanted.job):
            partition = task["task"]["partition"]
            if partition in self._missing:
                for each in task["replicas"]:
                    is_active = each["copy"] == task["active"]
                    if each["container"] and is_active == (self.wanted.role is Role.ACTIVE):
                        holders.setdefault(each["container"], []).append(partition)
        return holders

    def _believe(self, said: Iterable[SearchAnswer], status: Mapping[str, Any]) -> None:
        job = job_in(status, self.wanted.job)
        current = {each["task"]["partition"]: each for each in tasks_in(status, self.wanted.job)}
        for answer in said:
            partition = answer["partition"]
            task = current.get(partition)
            if partition not in self._missing or task is None:
                continue
            if job is None or answer["run"] != job["run"]:
                self._excuse((partition,), f"{answer['container']} has another run's state")
            elif answer["role"] == Role.ACTIVE.value and (answer["copy"], answer["epoch"]) != (
                task["active"],
                task["epoch"],
            ):
                self._excuse(
                    (partition,),
                    f"copy {answer['copy']} in {answer['container']} answers at epoch {answer['epoch']}, but copy "
                    f"{task['active']} is active at epoch {task['epoch']}",
                )
            else:
                best = self._answers.get(partition)
                # Among several standbys, the one that is least behind.
                if best is None or answer["lag_ms"] < best["lag_ms"]:
                    self._answers[partition] = answer

    def _excuse(self, partitions: Iterable[int], why: str) -> None:
        for each in partitions:
            if each in self._missing:
                self._missing[each] = ", ".join(filter(None, (self._missing[each], why)))
