"""Changes of the pure parts that no test can detect, because the behaviour stays the same: for tests/mutants.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

_ACCEPTED: Final = "standby/replica/accepted.py"
_CLAIM: Final = "standby/replica/claim.py"
_CORE: Final = "standby/control/core.py"
_LOOP: Final = "standby/control/loop.py"
_STATE: Final = "standby/control/state.py"
_FAILING: Final = "standby/replica/failing.py"
_LAG: Final = "standby/replica/lag.py"
_KEYS: Final = "standby/replica/store/keys.py"
_ORIGIN: Final = "standby/replica/store/origin.py"
_OVERLAY: Final = "standby/replica/store/overlay.py"
_SCAN: Final = "standby/replica/store/scan.py"
_COMMANDS: Final = "appmaster/planning/jobs/commands.py"
_COUNTERS: Final = "appmaster/planning/state/counters.py"
_DETECT: Final = "appmaster/planning/containers/detect.py"
_ELIGIBILITY: Final = "appmaster/planning/placement/eligibility.py"
_FAILOVER: Final = "appmaster/planning/rules/failover.py"
_FOLD_CHANGES: Final = "appmaster/planning/fold/changes.py"
_FOLD_CLUSTER: Final = "appmaster/planning/fold/from_cluster.py"
_FOLLOW: Final = "appmaster/planning/rules/follow_reports.py"
_JOB: Final = "appmaster/planning/state/job.py"
_MOVING: Final = "appmaster/planning/rules/moving.py"
_NEEDS: Final = "appmaster/planning/requests/needs.py"
_PLACING: Final = "appmaster/planning/rules/placing.py"
_PLAN: Final = "appmaster/planning/plan.py"
_PLANNED: Final = "appmaster/planning/rules/planned.py"
_REBALANCE: Final = "appmaster/planning/rules/rebalance.py"
_POOL_FIT: Final = "appmaster/planning/placement/pool_fit.py"
_RELOCATION: Final = "appmaster/planning/placement/relocation.py"
_REASONS: Final = "appmaster/planning/state/reasons.py"
_ROOM_OF: Final = "appmaster/planning/requests/room.py"
_REQUESTS: Final = "appmaster/planning/requests/requests.py"
_SETTLING: Final = "standby/kernel/replica/settling.py"
_SHARED: Final = "appmaster/planning/placement/shared_containers.py"
_SPARES: Final = "appmaster/planning/requests/spares.py"
_STATUS: Final = "appmaster/planning/jobs/status.py"
_SPREAD: Final = "appmaster/planning/placement/spread.py"
_TROUBLES: Final = "appmaster/planning/state/troubles.py"
_TURN: Final = "appmaster/planning/placement/turn.py"

_FOREIGN: Final = (
    'f"the committed offset has metadata that is not ours, {metadata[:80]!r}: another client commits with "'
)

_OWN: Final = (
    "there = self.job.broker.commit_records(self._partition, max(0, last.batch - {}), end, is_stable=True)"
)

_PLACED_APART: Final = (
    "if any(each.placed != records[{}].placed or each.moving or each.displaced is not None "
    "for each in records):"
)

_BEHIND: Final = (
    "return bool(ahead) and any(ahead.get(each.record.task, {}) > each.record.epoch "
    "for each in cohort.recorded)"
)

_SEEN: Final = (
    "if each.epoch > max(_epoch(view.records.get(each.replica.task)), view.ahead.get(each.replica.task, {}))"
)

_BOUND: Final = "if ({}, *domains.exposure((*others, hosts[{}]))[1:{}], {}) {} exposure:"

_RECORDS: Final = "model.tasks if processor in view.unsettled else model.tasks[:{}]"

_LENGTHS: Final = "for length in range({}, shortest + 1):"

_SHARED_CELLS: Final = "shared = dict.fromkeys(cells, {})"

_NEXT_MOVE: Final = (
    "if move is None or move.processor != cohorts[{}].processor or move.processor in turn.handing_over:"
)

_KEPT: Final = (
    "key=lambda each: (is_wanted(each), not each.is_warm, copies.get(each.host, ({}, {})), each.id),"
)

_FIRST_MOVER: Final = "least, mover, locations = exposure, cohort.copies[{}], frozenset[Location]()"

_SUPERSEDED: Final = "return 0 < self._highest_active[job.name] < revision {} job.revision"

_HIGHEST: Final = "(each.record.revision for each in recorded if each is not None), default={}"

_ALL_TASKS: Final = "tasks = len(cohorts[{}].job.model.processors[cohorts[{}].processor].tasks)"

_GRACE: Final = "_STABLE_GRACE_SECONDS: Final = {}.0"

_GENERATIONS: Final = (
    '(last.generation if last is not None else 0, *(int(each.get("topics", {})) for each in metadata))'
)

_BACKOFF: Final = "return min(self.retry_backoff_ms << min(before, {}), self.retry_backoff_max_ms)"

_NOT_KEEPING_UP: Final = (
    'return f"{task}: does not keep up: more than {BEHIND_MS // %s} s behind the end of its input"'
)

_FAILOVER_BUCKETS: Final = "*(1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0),"

_TURN_BUCKETS: Final = "(*(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05), *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0)),"

#: The constants of a policy that no test needs to the millisecond.
_POLICY_MS: Final = {
    "suspect_grace": 3_000,
    "restore_delay": 3_000,
    "prepare_timeout": 10_000,
    "rebalance_pause": 10_000,
    "reconnect_grace": 1_000,
    "takeover_grace": 5_000,
    "launch_timeout": 90_000,
    "any_timeout": 15_000,
    "stop_timeout": 10_000,
    "retry_backoff": 500,
    "retry_backoff_max": 15_000,
    "avoid_host": 10_000,
    "in_sync_interval": 500,
    "exit_timeout": 5_000,
    "quiet": 3_000,
}

#: Why → module, line before, lines after.
_BY_REASON: Final[Mapping[str, Sequence[tuple[str, str, tuple[str, ...]]]]] = {
    "how much of a value that is not ours is shown is no rule": [
        (module, line, tuple(line.replace(f":{length}]", f": {each}]") for each in (length - 1, length + 1)))
        for module, length, line in (
            (_CLAIM, 80, 'raise CorruptState(f"{value[:80]!r} is no commit record") from error'),
            (
                _CLAIM,
                80,
                _FOREIGN,
            ),
            (_KEYS, 32, 'raise CorruptState(f"{key[:32]!r} is no key of a store")'),
            (_KEYS, 32, 'raise CorruptState(f"{key[:32]!r} is no key of a store") from error'),
        )
    ],
    "where nothing is committed nothing is newer: an epoch is 1 or more": [
        (
            _CLAIM,
            "newest = max(claimed, default=0)",
            ("newest = max(claimed, default= -1)", "newest = max(claimed, default= 1)"),
        ),
    ],
    "a generation is 0 or more": [
        (_ACCEPTED, _GENERATIONS.format(0), (_GENERATIONS.format(-1),)),
    ],
    "from how many records or bytes on a transaction is large is no rule": [
        (
            _FAILING,
            "LARGE_RECORDS: Final = 50_000",
            ("LARGE_RECORDS: Final = 49999", "LARGE_RECORDS: Final = 50001"),
        ),
        (
            _FAILING,
            "LARGE_BYTES: Final = 16 << 20",
            tuple(
                f"LARGE_BYTES: Final = {each}" for each in ("15 << 20", "17 << 20", "16 << 19", "16 << 21")
            ),
        ),
    ],
    "the second line of a traceback is indented": [
        (
            _FAILING,
            "for line in errortext.worker_traceback(error).splitlines()[1:]:",
            ("for line in errortext.worker_traceback(error).splitlines()[ 2:]:",),
        ),
    ],
    "the suspect ends after one record": [(_FAILING, "at_once = 1", ("at_once = 2",))],
    "the bound only keeps the power from overflowing": [
        (
            _FAILING,
            "return min(first_seconds * 2.0 ** min(tries - 1, 16), longest_seconds)",
            tuple(
                f"return min(first_seconds * 2.0 ** min(tries - 1, {each}), longest_seconds)"
                for each in (15, 17)
            ),
        ),
        (
            "standby/control/turn.py",
            "longest = min(policy.backoff_most_ms, policy.backoff_least_ms << min(attempt - 1, 16))",
            tuple(
                f"longest = min(policy.backoff_most_ms, policy.backoff_least_ms << min(attempt - 1, {each}))"
                for each in (15, 17)
            ),
        ),
        (_JOB, _BACKOFF.format(16), (_BACKOFF.format(15), _BACKOFF.format(17))),
    ],
    "how many looks are kept or dropped is no rule": [
        (_LAG, "_SAMPLES: Final = 64", ("_SAMPLES: Final = 63", "_SAMPLES: Final = 65")),
        (_LAG, "self._stride *= 2", ("self._stride *= 3",)),
    ],
    "the first look sets both": [
        (_LAG, "self._stride = 1", ("self._stride = 0", "self._stride = 2")),
        (_LAG, "self._looks = 0", ("self._looks = -1", "self._looks = 1")),
    ],
    "of two equal times either is the earlier one": [
        (
            _LAG,
            "if newest is not None and at_ms < newest:",
            ("if newest is not None and at_ms <= newest:",),
        ),
    ],
    "an empty key is refused with any length": [
        (
            _KEYS,
            "length = key[0] if key else 0",
            ("length = key[0] if key else -1", "length = key[0] if key else 1"),
        ),
    ],
    "the layout of the file is no rule": [
        (
            _ORIGIN,
            'return json.dumps(asdict(self), indent=1).encode() + b"\\n"',
            tuple(f'return json.dumps(asdict(self), indent= {each}).encode() + b"\\n"' for each in (0, 2)),
        ),
    ],
    "one key has one value": [
        (_OVERLAY, "return self._reads.get_many((full,))[0]", ("return self._reads.get_many((full,))[ -1]",)),
    ],
    "nothing lies between equal keys": [
        (
            _OVERLAY,
            "own = self._order.between(start, stop) if start < stop else []",
            ("own = self._order.between(start, stop) if start <= stop else []",),
        ),
        (_SCAN, "limit, is_last = _FIRST, start >= stop", ("limit, is_last = _FIRST, start > stop",)),
    ],
    "the only caller names the direction": [
        (
            module,
            "def page(self, start: bytes, stop: bytes, limit: int, *, reverse: bool = False) -> ScanPage:",
            ("def page(self, start: bytes, stop: bytes, limit: int, *, reverse: bool = True) -> ScanPage:",),
        )
        for module in (_OVERLAY, _SCAN)
    ],
    "both times have passed": [
        (
            _CORE,
            line,
            tuple(line.replace("(0, 0)", f"(0, {each})") for each in (-1, 1)),
        )
        for line in (
            "return replace(known, link=NoStream(0, 0)), notes",
            "dropped = replace(state, link=NoStream(0, 0))",
        )
    ],
    "to wait for a millisecond is not to wait": [
        (
            _CORE,
            "waits = state.policy.leave_timeout_ms > 0 and state.leaving is None and state.closing is None",
            (
                "waits = state.policy.leave_timeout_ms > 1 and state.leaving is None and state.closing is None",
            ),
        ),
    ],
    "only a change of it counts": [
        (
            _STATE,
            "return state.is_warm, state.revisions, state.leaving is not None, reported",
            ("return state.is_warm, state.revisions, state.leaving is None, reported",),
        ),
        *(
            (_FOLD_CLUSTER, before, (after,))
            for before, after in (
                ("container.applied >= container.sent,", "container.applied < container.sent,"),
                ("each.lag_ms is None,", "each.lag_ms is not None,"),
                (
                    "each.lag_ms is not None and each.lag_ms <= bound,",
                    "each.lag_ms is not None and each.lag_ms > bound,",
                ),
            )
        ),
    ],
    "how long an orderly end may take is no rule": [
        (_LOOP, "_FINISH_SECONDS: Final = 0.5", ("_FINISH_SECONDS: Final = 1.5",)),
        (_LOOP, "_LEAVE_SECONDS: Final = 1.0", ("_LEAVE_SECONDS: Final = 2.0",)),
    ],
    "a millisecond more or less is no rule": [
        (_REBALANCE, "LOOK_MS: Final = 1_000", ("LOOK_MS: Final = 999", "LOOK_MS: Final = 1001")),
        (
            "appmaster/planning/jobs/spreading.py",
            "due_ms = (known.whole_ms or 0) + policy.rebalance_pause_ms",
            tuple(f"due_ms = (known.whole_ms or {each}) + policy.rebalance_pause_ms" for each in (-1, 1)),
        ),
        (_STATE, "backoff_least_ms: int = 50", ("backoff_least_ms: int = 49", "backoff_least_ms: int = 51")),
        (
            _STATE,
            "backoff_most_ms: int = 2_000",
            ("backoff_most_ms: int = 1999", "backoff_most_ms: int = 2001"),
        ),
        (_STATE, "stall_ms: int = 1_000", ("stall_ms: int = 1001",)),
        (_STATE, "leave_timeout_ms: int = 0", ("leave_timeout_ms: int = -1",)),
        *(
            (_JOB, f"{name}_ms: int = {ms:_}", tuple(f"{name}_ms: int = {each}" for each in (ms - 1, ms + 1)))
            for name, ms in _POLICY_MS.items()
        ),
    ],
    "only a type checker looks at it": [
        (
            _REASONS,
            'K_co = TypeVar("K_co", bound=enum.Enum, covariant=True)',
            ('K_co = TypeVar("K_co", bound=enum.Enum, covariant=False)',),
        ),
    ],
    "it is the same number of seconds": [(_TROUBLES, _NOT_KEEPING_UP % 1000, (_NOT_KEEPING_UP % 999,))],
    "where between its neighbours a bucket ends is no rule": [
        (_COUNTERS, line, tuple(line.replace(f" {each}.0", f" {other}.0") for each, other in others))
        for line, others in (
            (_FAILOVER_BUCKETS, ((3, 4), (5, 4), (5, 6), (10, 11), (30, 29), (60, 59), (60, 61))),
            (_TURN_BUCKETS, ((2, 3), (5, 4), (5, 6))),
        )
    ],
    "the first report is due because nothing was sent": [
        (_STATE, "sent_number: int = 0", ("sent_number: int = -1", "sent_number: int = 1")),
        (_STATE, "sent_at_ms: int = 0", ("sent_at_ms: int = -1", "sent_at_ms: int = 1")),
    ],
    "only the difference of two counts is used": [
        (_LOOP, "self._turns = 0", ("self._turns = -1", "self._turns = 1")),
    ],
    "the size of pages is no rule": [
        (
            _SCAN,
            "is_last, limit = page.is_last, min(_LARGEST, 8 * limit)",
            tuple(f"is_last, limit = page.is_last, min(_LARGEST, {each} * limit)" for each in (7, 9)),
        ),
        (_SCAN, "_FIRST: Final = 16", ("_FIRST: Final = 15", "_FIRST: Final = 17")),
        (_SCAN, "_LARGEST: Final = 1_024", ("_LARGEST: Final = 1023", "_LARGEST: Final = 1025")),
        (_SCAN, "_FEW: Final = 64", ("_FEW: Final = 63", "_FEW: Final = 65")),
    ],
    "keys inserted one by one and keys sorted together have the same order": [
        (
            _SCAN,
            "if len(new) <= _FEW:",
            ("if len(new) < _FEW:", "if len(new) > _FEW:", "if not len(new) <= _FEW:"),
        ),
    ],
    "how often is looked, and by how much later than the time-out is given up, is no rule": [
        (_SETTLING, "_STABLE_GRACE_SECONDS: Final = 15.0", tuple(_GRACE.format(each) for each in (14, 16))),
        (
            _SETTLING,
            "return self.job.config.transaction_timeout_ms / 1000 + _STABLE_GRACE_SECONDS",
            tuple(
                f"return self.job.config.transaction_timeout_ms / {each} + _STABLE_GRACE_SECONDS"
                for each in (999, 1001)
            ),
        ),
        (_SETTLING, "_FIRST_PAUSE_SECONDS: Final = 0.002", ("_FIRST_PAUSE_SECONDS: Final = 1.002",)),
        (_SETTLING, "_PAUSE_SECONDS: Final = 0.1", ("_PAUSE_SECONDS: Final = 1.1",)),
        (
            _SETTLING,
            "return min(2 * seconds, _PAUSE_SECONDS)",
            (
                "return min( 1 * seconds, _PAUSE_SECONDS)",
                "return min( 3 * seconds, _PAUSE_SECONDS)",
                "return min(2 / seconds, _PAUSE_SECONDS)",
            ),
        ),
        (
            _SETTLING,
            "if stable >= end or self._now() > deadline:",
            ("if stable >= end or self._now() >= deadline:",),
        ),
        (
            _SETTLING,
            "if not behind or self._now() > deadline:",
            ("if not behind or self._now() >= deadline:",),
        ),
    ],
    "how many of the last transactions are looked up is no rule": [
        (_SETTLING, "_FEW: Final = 20", ("_FEW: Final = 19", "_FEW: Final = 21")),
    ],
    "of two commits with different numbers one is not taken for the other": [
        (_SETTLING, _OWN.format(1), (_OWN.format(2),)),
    ],
    "its own marker is behind the end of what is waited for": [
        (_SETTLING, "if stable < target:", ("if stable <= target:",)),
    ],
    "the bound only saves work: a location that would not lower the exposure is not taken either way": [
        (
            _RELOCATION,
            _BOUND.format(0, 0, -1, 0, ">="),
            tuple(
                _BOUND.format(*each)
                for each in (
                    *((0, 0, -1, 0, ">"), (" -1", 0, -1, 0, ">="), (0, 0, -1, -1, ">=")),
                    *((0, 0, end, 0, ">=") for end in ("+1", "1", "- 0")),
                )
            ),
        ),
    ],
    "no lower exposure is left out: where no host loses all copies, an attribute is shared no more": [
        (
            _RELOCATION,
            _BOUND.format(0, 0, -1, 0, ">="),
            (_BOUND.format(0, 0, "- 2", 0, ">="), _BOUND.format(0, 0, -1, 1, ">=")),
        ),
    ],
    "hosts that are alike have the same attributes": [
        (_RELOCATION, _BOUND.format(0, 0, -1, 0, ">="), (_BOUND.format(0, " -1", -1, 0, ">="),)),
    ],
    "one of its copies can move": [
        (_RELOCATION, _FIRST_MOVER.format(0), (_FIRST_MOVER.format(" 1"), _FIRST_MOVER.format(" -1"))),
    ],
    "how many containers are considered is no rule": [
        (_TURN, "_MOST_HOMES: Final = 4", ("_MOST_HOMES: Final = 3", "_MOST_HOMES: Final = 5")),
    ],
    "no record has a version below 0": [
        (_TURN, "_NO_VERSION: Final = -1", ("_NO_VERSION: Final = - 2",)),
    ],
    "the present revision is not superseded either way": [
        (_TURN, _SUPERSEDED.format("<"), (_SUPERSEDED.format("<="),)),
    ],
    "with any value below 1, no revision was active": [
        (_TURN, _HIGHEST.format(0), (_HIGHEST.format(" -1"),)),
    ],
    "homes of equal rank are the same homes": [
        (_TURN, "if best is None or rank < best:", ("if best is None or rank <= best:",)),
    ],
    "the records of a settled processor agree": [
        (_SPREAD, f"{before}{_RECORDS.format(1)}{after}", (f"{before}{_RECORDS.format(' 2')}{after}",))
        for before, after in (("tasks = ", ""), ("for task in ", ":"))
    ],
    "lengths are only compared with each other": [
        (_SPREAD, _LENGTHS.format(1), (_LENGTHS.format(" 0"), _LENGTHS.format(" 2"))),
    ],
    "the steps are sorted afterwards": [
        (
            _SPREAD,
            "for most in sorted(set(counts.values()), reverse=True):",
            ("for most in sorted(set(counts.values()), reverse=False):",),
        ),
    ],
    "how many actions a turn starts at most is no rule": [
        (
            _PLAN,
            "MOST_ACTIONS: Final = 5_000",
            ("MOST_ACTIONS: Final = 4999", "MOST_ACTIONS: Final = 5001"),
        ),
    ],
    "the order of the actions stays the same": [
        (_PLAN, "return 0", ("return -1",)),
        (
            _PLAN,
            "return 3 if isinstance(action, Answer) else 2",
            ("return 4 if isinstance(action, Answer) else 2",),
        ),
    ],
    "nothing is reached from nowhere": [
        (
            _SPREAD,
            "break  # no further place can be reached",
            ("continue  # no further place can be reached",),
        ),
    ],
    "no single step is a path, so a place with as many actives, or one seen before, is on no shorter one": [
        (
            _SPREAD,
            "if counts[target] == most - 1 and target not in seen",
            ("if counts[target] == most - 1 or target not in seen",),
        ),
    ],
    "it only saves a search: without needs, or spare containers, none is taken": [
        (
            _SPARES,
            "if not needed or not _are_there(turn):",
            ("if not needed and not _are_there(turn):",),
        ),
    ],
    "of a job that has no spare containers and wants none, none is given back or needed": [
        (
            _SPARES,
            "each for each in view.jobs.values() if each.policy.spare_count or (are_there and turn.spares(each))",
            (
                "each for each in view.jobs.values() if each.policy.spare_count or (are_there or turn.spares(each))",
            ),
        ),
    ],
    "as many as are kept are kept in any order": [
        (_SPARES, "if len(counted) <= target:", ("if len(counted) < target:",)),
    ],
    "on a host that is known there is one at least": [
        (_SPARES, _KEPT.format(0, 0), tuple(_KEPT.format(*each) for each in ((" -1", 0), (0, -1)))),
    ],
    "the copies of a processor ask for the same, and so do the containers of a mixed job": [
        (
            _STATUS,
            "if is_apart and (why := why_no_process(turn.view, job, slots[0])):",
            tuple(
                f"if is_apart and (why := why_no_process(turn.view, job, slots[ {each}])):"
                for each in (-1, 1)
            ),
        ),
        (
            _STATUS,
            "asked = SharedSlotId(job.name, 0) if job.model.is_mixed else slot",
            tuple(
                f"asked = SharedSlotId(job.name, {each}) if job.model.is_mixed else slot" for each in (-1, 1)
            ),
        ),
        (
            _STATUS,
            "slots = [SlotId(processor, each) for each in cohorts[0].copies] if not job.model.is_mixed else []",
            (
                "slots = [SlotId(processor, each) for each in cohorts[ -1].copies] if not job.model.is_mixed else []",
            ),
        ),
    ],
    "only a command for one processor can name one that there is not": [
        (_COMMANDS, "continue", ("break",)),
    ],
    "after one failure no other host is tried, because one is odd": [
        (_REQUESTS, "NAMED_FIRST: Final = 2", ("NAMED_FIRST: Final = 1",)),
    ],
    "it gets its number when all requests of the turn are known": [
        (
            _REQUESTS,
            "self._found[slot] = RequestContainer(0, slot, host, kind, reason, cell, demand_of(need.job, slot))",
            tuple(
                f"self._found[slot] = RequestContainer( {each}, slot, host, kind, reason, cell, "
                "demand_of(need.job, slot))"
                for each in (-1, 1)
            ),
        ),
    ],
    "the cell that is asked is one of those that are counted": [
        (
            _REQUESTS,
            "self.cells[cell] = self.cells.get(cell, 0) + 1",
            tuple(f"self.cells[cell] = self.cells.get(cell, {each}) + 1" for each in (-1, 1)),
        ),
    ],
    "the counts of cells are only compared with each other": [
        (_REQUESTS, _SHARED_CELLS.format(0), (_SHARED_CELLS.format(-1), _SHARED_CELLS.format(1))),
        (_REQUESTS, "shared[sibling.host.cell] += 1", ("shared[sibling.host.cell] += 2",)),
    ],
    "it only saves a search: where nothing is requested or free, no move has begun": [
        (
            _ROOM_OF,
            "if lacking or (not is_known and _has_reserved(turn, job)):",
            ("if lacking or (not is_known or _has_reserved(turn, job)):",),
        ),
        (
            _ROOM_OF,
            "return not job.model.is_mixed and (is_asked or bool(turn.free(job)))",
            ("return not job.model.is_mixed or (is_asked or bool(turn.free(job)))",),
        ),
    ],
    "the same for all containers": [
        (
            _SHARED,
            "actives if activates else 0,",
            ("actives if activates else -1,", "actives if activates else 1,"),
        ),
    ],
    "the containers of a mixed job are asked for alike": [
        (
            _SHARED,
            "return why_none_waits(turn, job, SharedSlotId(job.name, 0), closed)",
            tuple(
                f"return why_none_waits(turn, job, SharedSlotId(job.name, {each}), closed)"
                for each in (-1, 1)
            ),
        ),
    ],
    "there is only one": [
        (
            _TURN,
            "return cohorts[0] if len(cohorts) == 1 else None",
            ("return cohorts[ -1] if len(cohorts) == 1 else None",),
        ),
        ("appmaster/planning/rules/deploy.py", "cohort = cohorts[0]", ("cohort = cohorts[ -1]",)),
        (
            _MOVING,
            "if others and (len(cohort.copies) > 1 or cohort.copies[0] in others):",
            ("if others and (len(cohort.copies) > 1 or cohort.copies[ -1] in others):",),
        ),
    ],
    "the order of the copies that are compared stays the same": [
        (_FAILOVER, line.format(before), tuple(line.format(each) for each in after))
        for line, before, after in (
            (
                "load = turn.loads.of(container.id).actives if in_sync and cohort.job.model.is_mixed else {}",
                "0",
                ("-1", "1"),
            ),
            ("lag = start = {}", "0", ("-1",)),
            ("leaves if in_sync else {},", "2", ("3",)),
            ("start if in_sync else {},", "0", ("-1", "1")),
        )
    ],
    "no lag comes near it": [
        (
            _FAILOVER,
            "lag += records if records is not None else 1 << 40",
            tuple(
                f"lag += records if records is not None else {each}"
                for each in ("2 << 40", "1 << 39", "1 << 41")
            ),
        ),
    ],
    "the leader's clock is past its first millisecond": [
        (module, line, tuple(line.replace(", 0)", f", {each})") for each in (-1, 1)))
        for module, line in (
            (
                _FAILOVER,
                "if cohort.job.quarantined or view.now_ms < view.no_displacing.get(cohort.processor, 0):",
            ),
            (_FAILOVER, "if turn.view.now_ms >= turn.view.no_displacing.get(cohort.processor, 0):"),
            (_NEEDS, "and turn.view.now_ms >= turn.view.no_displacing.get(cohort.processor, 0)"),
        )
    ],
    "it only saves a search: where no container is missing or requested, none is needed": [
        (
            _NEEDS,
            "if missing <= 0 and not asked:",
            ("if missing < 0 and not asked:", "if missing <= -1 and not asked:"),
        ),
    ],
    "an epoch is 0 or more": [
        (_FOLLOW, "seen = ahead.get(record.task, 0)", ("seen = ahead.get(record.task, -1)",)),
        (
            _FOLD_CHANGES,
            "return recorded.record.epoch if recorded is not None else 0",
            ("return recorded.record.epoch if recorded is not None else -1",),
        ),
        (_FOLD_CHANGES, _SEEN.format(0), (_SEEN.format(-1),)),
    ],
    "the records name one host for all copies in a container": [
        (_FOLD_CHANGES, "break", ("continue",)),
    ],
    "of one of the tasks, a container has seen an epoch of 1 or more": [
        (
            _FOLLOW,
            "highest = max(ahead.get(task, 0) for task in cohort.tasks)",
            tuple(f"highest = max(ahead.get(task, {each}) for task in cohort.tasks)" for each in (-1, 1)),
        ),
    ],
    "the tasks of a processor belong to one job": [
        ("appmaster/planning/placement/left_state.py", "continue", ("break",)),
        (_ELIGIBILITY, "job = cohorts[0].job", ("job = cohorts[ -1].job",)),
        (
            _TURN,
            "ranked = sorted(found.values(), key=lambda each: self._rank(cohorts[0].job, each[1]))",
            ("ranked = sorted(found.values(), key=lambda each: self._rank(cohorts[ -1].job, each[1]))",),
        ),
    ],
    "the only candidate is the best one": [
        (_ELIGIBILITY, "if len(candidates) < 2:", ("if len(candidates) < 1:",)),
        (
            _ELIGIBILITY,
            "return candidates[0] if candidates else None",
            ("return candidates[ -1] if candidates else None",),
        ),
    ],
    "the parts of a processor are of one processor": [
        (_TURN, _ALL_TASKS.format(0, 0), (_ALL_TASKS.format(" -1", 0), _ALL_TASKS.format(0, " -1"))),
        (_TURN, "for copy in cohorts[0].copies:", ("for copy in cohorts[ -1].copies:",)),
        *(
            (module, "processor = cohorts[0].processor", ("processor = cohorts[ -1].processor",))
            for module in (_COMMANDS, _PLANNED)
        ),
        (_REBALANCE, _NEXT_MOVE.format(0), (_NEXT_MOVE.format(" -1"),)),
    ],
    "a container of no known job unsettles nothing": [
        (
            _FOLD_CLUSTER,
            "bound = job.policy.lag_time_ms if job is not None else 0",
            tuple(f"bound = job.policy.lag_time_ms if job is not None else {each}" for each in (-1, 1)),
        ),
    ],
    "the records of a decision about the active agree": [
        (
            "appmaster/planning/fold/failovers.py",
            "new = action.changes[0].record",
            ("new = action.changes[ -1].record",),
        ),
        (
            "appmaster/planning/fold/from_actions.py",
            "active = action.changes[0].record.active",
            ("active = action.changes[ -1].record.active",),
        ),
    ],
    "if all are equal, they are equal to any of them": [
        (_PLANNED, _PLACED_APART.format(0), (_PLACED_APART.format(" -1"),)),
    ],
    "a copy that is active has a container here, and does not take over from itself": [
        (
            _PLANNED,
            "if main == cohort.record.active or holder is None or turn.view.must_leave(holder):",
            ("if main == cohort.record.active and holder is None or turn.view.must_leave(holder):",),
        ),
    ],
    "the same holds for all later copies": [
        (
            _PLACING,
            f"continue  # {why}",
            (f"break  # {why}",),
        )
        for why in (
            "the first copy is the first active: every active before any standby (SEP-23)",
            "a live copy is about to be promoted; this slot becomes a standby's then",
        )
    ],
    "it only saves a closer look, at a silence within the time-outs of every job, that finds no loss": [
        (
            _DETECT,
            "and view.now_ms - each.heard_ms > shortest",
            tuple(f"and view.now_ms {each} shortest" for each in ("+ each.heard_ms >", "- each.heard_ms >=")),
        ),
    ],
    "an epoch is not negative": [
        ("appmaster/planning/rules/situations.py", _BEHIND.format(0), (_BEHIND.format(-1),)),
    ],
    "without a commit behind the last one nothing follows from it": [
        (
            _SETTLING,
            "later = self._later(last, end) if last is not None and last.end < end else []",
            ("later = self._later(last, end) if last is not None and last.end <= end else []",),
        ),
    ],
}

#: Module, line before, line after → why the behaviour stays the same.
EQUIVALENT: Final[Mapping[tuple[str, str, str], str]] = {
    (module, before, after): reason
    for reason, changes in _BY_REASON.items()
    for module, before, all_after in changes
    for after in all_after
}
