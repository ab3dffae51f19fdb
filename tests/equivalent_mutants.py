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
_DEPLOY: Final = "appmaster/planning/rules/deploy.py"
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

#: Why → module, the line with a gap, and what may be there: at present, and with each change.
_BY_REASON: Final[Mapping[str, Sequence[tuple[str, str, tuple[str, ...]]]]] = {
    "how much of a value that is not ours is shown is no rule": [
        (
            _CLAIM,
            'raise CorruptState(f"{value[:{}]!r} is no commit record") from error',
            ("80", " 79", " 81"),
        ),
        (
            _CLAIM,
            (
                'f"the committed offset has metadata that is not ours, {metadata[:{}]!r}: another client '
                'commits with "'
            ),
            ("80", " 79", " 81"),
        ),
        (_KEYS, 'raise CorruptState(f"{key[:{}]!r} is no key of a store")', ("32", " 31", " 33")),
        (_KEYS, 'raise CorruptState(f"{key[:{}]!r} is no key of a store") from error', ("32", " 31", " 33")),
    ],
    "where nothing is committed nothing is newer: an epoch is 1 or more": [
        (_CLAIM, "newest = max(claimed, default={})", ("0", " -1", " 1")),
    ],
    "a generation is 0 or more": [
        (
            _ACCEPTED,
            (
                '(last.generation if last is not None else 0, *(int(each.get("topics", {})) for each in '
                "metadata))"
            ),
            ("0", "-1"),
        ),
    ],
    "from how many records or bytes on a transaction is large is no rule": [
        (_FAILING, "LARGE_RECORDS: Final = {}", ("50_000", "49999", "50001")),
        (_FAILING, "LARGE_BYTES: Final = {}", ("16 << 20", "15 << 20", "17 << 20", "16 << 19", "16 << 21")),
    ],
    "the second line of a traceback is indented": [
        (_FAILING, "for line in errortext.worker_traceback(error).splitlines()[{}:]:", ("1", " 2")),
    ],
    "the suspect ends after one record": [
        (_FAILING, "at_once = {}", ("1", "2")),
    ],
    "the bound only keeps the power from overflowing": [
        (
            _FAILING,
            "return min(first_seconds * 2.0 ** min(tries - 1, {}), longest_seconds)",
            ("16", "15", "17"),
        ),
        (
            "standby/control/turn.py",
            "longest = min(policy.backoff_most_ms, policy.backoff_least_ms << min(attempt - 1, {}))",
            ("16", "15", "17"),
        ),
        (
            _JOB,
            "return min(self.retry_backoff_ms << min(before, {}), self.retry_backoff_max_ms)",
            ("16", "15", "17"),
        ),
    ],
    "how many looks are kept or dropped is no rule": [
        (_LAG, "_SAMPLES: Final = {}", ("64", "63", "65")),
        (_LAG, "self._stride *= {}", ("2", "3")),
    ],
    "the first look sets both": [
        (_LAG, "self._stride = {}", ("1", "0", "2")),
        (_LAG, "self._looks = {}", ("0", "-1", "1")),
    ],
    "of two equal times either is the earlier one": [
        (_LAG, "if newest is not None and at_ms {} newest:", ("<", "<=")),
    ],
    "an empty key is refused with any length": [
        (_KEYS, "length = key[0] if key else {}", ("0", "-1", "1")),
    ],
    "the layout of the file is no rule": [
        (_ORIGIN, 'return json.dumps(asdict(self), indent={}).encode() + b"\\n"', ("1", " 0", " 2")),
    ],
    "one key has one value": [
        (_OVERLAY, "return self._reads.get_many((full,))[{}]", ("0", " -1")),
    ],
    "nothing lies between equal keys": [
        (_OVERLAY, "own = self._order.between(start, stop) if start {} stop else []", ("<", "<=")),
        (_SCAN, "limit, is_last = _FIRST, start {} stop", (">=", ">")),
    ],
    "the only caller names the direction": [
        (
            _OVERLAY,
            "def page(self, start: bytes, stop: bytes, limit: int, *, reverse: bool = {}) -> ScanPage:",
            ("False", "True"),
        ),
        (
            _SCAN,
            "def page(self, start: bytes, stop: bytes, limit: int, *, reverse: bool = {}) -> ScanPage:",
            ("False", "True"),
        ),
    ],
    "both times have passed": [
        (_CORE, "return replace(known, link=NoStream(0, {})), notes", ("0", "-1", "1")),
        (_CORE, "dropped = replace(state, link=NoStream(0, {}))", ("0", "-1", "1")),
    ],
    "to wait for a millisecond is not to wait": [
        (
            _CORE,
            "waits = state.policy.leave_timeout_ms > {} and state.leaving is None and state.closing is None",
            ("0", "1"),
        ),
    ],
    "only a change of it counts": [
        (
            _STATE,
            "return state.is_warm, state.revisions, state.leaving is {}, reported",
            ("not None", "None"),
        ),
        (_FOLD_CLUSTER, "container.applied {} container.sent,", (">=", "<")),
        (_FOLD_CLUSTER, "each.lag_ms is {},", ("None", "not None")),
        (_FOLD_CLUSTER, "each.lag_ms is not None and each.lag_ms {} bound,", ("<=", ">")),
    ],
    "how long an orderly end may take is no rule": [
        (_LOOP, "_FINISH_SECONDS: Final = {}", ("0.5", "1.5")),
        (_LOOP, "_LEAVE_SECONDS: Final = {}", ("1.0", "2.0")),
    ],
    "a millisecond more or less is no rule": [
        (_REBALANCE, "LOOK_MS: Final = {}", ("1_000", "999", "1001")),
        (
            "appmaster/planning/jobs/spreading.py",
            "due_ms = (known.whole_ms or {}) + policy.rebalance_pause_ms",
            ("0", "-1", "1"),
        ),
        (_STATE, "backoff_least_ms: int = {}", ("50", "49", "51")),
        (_STATE, "backoff_most_ms: int = {}", ("2_000", "1999", "2001")),
        (_STATE, "stall_ms: int = {}", ("1_000", "1001")),
        (_STATE, "leave_timeout_ms: int = {}", ("0", "-1")),
        (_JOB, "suspect_grace_ms: int = {}", ("3_000", "2999", "3001")),
        (_JOB, "restore_delay_ms: int = {}", ("3_000", "2999", "3001")),
        (_JOB, "prepare_timeout_ms: int = {}", ("10_000", "9999", "10001")),
        (_JOB, "rebalance_pause_ms: int = {}", ("10_000", "9999", "10001")),
        (_JOB, "reconnect_grace_ms: int = {}", ("1_000", "999", "1001")),
        (_JOB, "takeover_grace_ms: int = {}", ("5_000", "4999", "5001")),
        (_JOB, "launch_timeout_ms: int = {}", ("90_000", "89999", "90001")),
        (_JOB, "any_timeout_ms: int = {}", ("15_000", "14999", "15001")),
        (_JOB, "stop_timeout_ms: int = {}", ("10_000", "9999", "10001")),
        (_JOB, "retry_backoff_ms: int = {}", ("500", "499", "501")),
        (_JOB, "retry_backoff_max_ms: int = {}", ("15_000", "14999", "15001")),
        (_JOB, "avoid_host_ms: int = {}", ("10_000", "9999", "10001")),
        (_JOB, "in_sync_interval_ms: int = {}", ("500", "499", "501")),
        (_JOB, "exit_timeout_ms: int = {}", ("5_000", "4999", "5001")),
        (_JOB, "quiet_ms: int = {}", ("3_000", "2999", "3001")),
    ],
    "only a type checker looks at it": [
        (_REASONS, 'K_co = TypeVar("K_co", bound=enum.Enum, covariant={})', ("True", "False")),
    ],
    "it is the same number of seconds": [
        (
            _TROUBLES,
            'return f"{task}: does not keep up: more than {BEHIND_MS // {}} s behind the end of its input"',
            ("1000", "999"),
        ),
    ],
    "where between its neighbours a bucket ends is no rule": [
        (_COUNTERS, "*(1.0, 1.5, 2.0, {}, 5.0, 10.0, 30.0, 60.0),", ("3.0", "4.0")),
        (_COUNTERS, "*(1.0, 1.5, 2.0, 3.0, {}, 10.0, 30.0, 60.0),", ("5.0", "4.0", "6.0")),
        (_COUNTERS, "*(1.0, 1.5, 2.0, 3.0, 5.0, {}, 30.0, 60.0),", ("10.0", "11.0")),
        (_COUNTERS, "*(1.0, 1.5, 2.0, 3.0, 5.0, 10.0, {}, 60.0),", ("30.0", "29.0")),
        (_COUNTERS, "*(1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, {}),", ("60.0", "59.0", "61.0")),
        (
            _COUNTERS,
            "(*(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05), *(0.1, 0.2, 0.5, 1.0, {})),",
            ("2.0, 5.0", "3.0, 5.0", "2.0, 4.0", "2.0, 6.0"),
        ),
    ],
    "the first report is due because nothing was sent": [
        (_STATE, "sent_number: int = {}", ("0", "-1", "1")),
        (_STATE, "sent_at_ms: int = {}", ("0", "-1", "1")),
    ],
    "only the difference of two counts is used": [
        (_LOOP, "self._turns = {}", ("0", "-1", "1")),
    ],
    "the size of pages is no rule": [
        (_SCAN, "is_last, limit = page.is_last, min(_LARGEST, {} * limit)", ("8", "7", "9")),
        (_SCAN, "_FIRST: Final = {}", ("16", "15", "17")),
        (_SCAN, "_LARGEST: Final = {}", ("1_024", "1023", "1025")),
        (_SCAN, "_FEW: Final = {}", ("64", "63", "65")),
    ],
    "keys inserted one by one and keys sorted together have the same order": [
        (_SCAN, "if len(new) {} _FEW:", ("<=", "<", ">")),
        (_SCAN, "if {}(new) <= _FEW:", ("len", "not len")),
    ],
    "how often is looked, and by how much later than the time-out is given up, is no rule": [
        (_SETTLING, "_STABLE_GRACE_SECONDS: Final = {}", ("15.0", "14.0", "16.0")),
        (
            _SETTLING,
            "return self.job.config.transaction_timeout_ms / {} + _STABLE_GRACE_SECONDS",
            ("1000", "999", "1001"),
        ),
        (_SETTLING, "_FIRST_PAUSE_SECONDS: Final = {}", ("0.002", "1.002")),
        (_SETTLING, "_PAUSE_SECONDS: Final = {}", ("0.1", "1.1")),
        (_SETTLING, "return min({} seconds, _PAUSE_SECONDS)", ("2 *", " 1 *", " 3 *", "2 /")),
        (_SETTLING, "if stable >= end or self._now() {} deadline:", (">", ">=")),
        (_SETTLING, "if not behind or self._now() {} deadline:", (">", ">=")),
    ],
    "how many of the last transactions are looked up is no rule": [
        (_SETTLING, "_FEW: Final = {}", ("20", "19", "21")),
    ],
    "of two commits with different numbers one is not taken for the other": [
        (
            _SETTLING,
            (
                "there = self.job.broker.commit_records(self._partition, max(0, last.batch - {}), end, "
                "is_stable=True)"
            ),
            ("1", "2"),
        ),
    ],
    "its own marker is behind the end of what is waited for": [
        (_SETTLING, "if stable {} target:", ("<", "<=")),
    ],
    "the bound only saves work: a location that would not lower the exposure is not taken either way": [
        (_RELOCATION, "if (0, *domains.exposure((*others, hosts[0]))[1:-1], 0) {} exposure:", (">=", ">")),
        (_RELOCATION, "if ({}, *domains.exposure((*others, hosts[0]))[1:-1], 0) >= exposure:", ("0", " -1")),
        (_RELOCATION, "if (0, *domains.exposure((*others, hosts[0]))[1:-1], {}) >= exposure:", ("0", "-1")),
        (
            _RELOCATION,
            "if (0, *domains.exposure((*others, hosts[0]))[1:{}], 0) >= exposure:",
            ("-1", "+1", "1"),
        ),
        (_RELOCATION, "if (0, *domains.exposure((*others, hosts[0]))[1:-{}], 0) >= exposure:", ("1", " 0")),
    ],
    "no lower exposure is left out: where no host loses all copies, an attribute is shared no more": [
        (
            _RELOCATION,
            "if (0, *domains.exposure((*others, hosts[0]))[1:-{}) >= exposure:",
            ("1], 0", " 2], 0", "1], 1"),
        ),
    ],
    "hosts that are alike have the same attributes": [
        (_RELOCATION, "if (0, *domains.exposure((*others, hosts[{}]))[1:-1], 0) >= exposure:", ("0", " -1")),
    ],
    "one of its copies can move": [
        (
            _RELOCATION,
            "least, mover, locations = exposure, cohort.copies[{}], frozenset[Location]()",
            ("0", " 1", " -1"),
        ),
    ],
    "how many containers are considered is no rule": [
        (_TURN, "_MOST_HOMES: Final = {}", ("4", "3", "5")),
    ],
    "no record has a version below 0": [
        (_TURN, "_NO_VERSION: Final = -{}", ("1", " 2")),
    ],
    "the present revision is not superseded either way": [
        (_TURN, "return 0 < self._highest_active[job.name] < revision {} job.revision", ("<", "<=")),
    ],
    "with any value below 1, no revision was active": [
        (_TURN, "(each.record.revision for each in recorded if each is not None), default={}", ("0", " -1")),
    ],
    "homes of equal rank are the same homes": [
        (_TURN, "if best is None or rank {} best:", ("<", "<=")),
    ],
    "the records of a settled processor agree": [
        (_SPREAD, "tasks = model.tasks if processor in view.unsettled else model.tasks[:{}]", ("1", " 2")),
        (
            _SPREAD,
            "for task in model.tasks if processor in view.unsettled else model.tasks[:{}]:",
            ("1", " 2"),
        ),
    ],
    "lengths are only compared with each other": [
        (_SPREAD, "for length in range({}, shortest + 1):", ("1", " 0", " 2")),
    ],
    "the steps are sorted afterwards": [
        (_SPREAD, "for most in sorted(set(counts.values()), reverse={}):", ("True", "False")),
    ],
    "how many actions a turn starts at most is no rule": [
        (_PLAN, "MOST_ACTIONS: Final = {}", ("5_000", "4999", "5001")),
    ],
    "the order of the actions stays the same": [
        (_PLAN, "return {}", ("0", "-1")),
        (_PLAN, "return {} if isinstance(action, Answer) else 2", ("3", "4")),
    ],
    "nothing is reached from nowhere": [
        (_SPREAD, "{}  # no further place can be reached", ("break", "continue")),
    ],
    "no single step is a path, so a place with as many actives, or one seen before, is on no shorter one": [
        (_SPREAD, "if counts[target] == most - 1 {} target not in seen", ("and", "or")),
    ],
    "it only saves a search: without needs, or spare containers, none is taken": [
        (_SPARES, "if not needed {} not _are_there(turn):", ("or", "and")),
    ],
    "of a job that has no spare containers and wants none, none is given back or needed": [
        (
            _SPARES,
            (
                "each for each in view.jobs.values() if each.policy.spare_count or (are_there {} "
                "turn.spares(each))"
            ),
            ("and", "or"),
        ),
    ],
    "no slot is added if none is missing": [
        (
            _SPARES,
            "if missing {} and is_last and _is_whole(turn, job) and not turn.is_warming_up(job):",
            ("> 0", "> -1", ">= 0"),
        ),
    ],
    "the tasks of a processor that is whole are one cohort": [
        (_DEPLOY, "and next_relocation(turn, cohorts[{}]) is None", ("0", " -1")),
        (_DEPLOY, "and not can_relocate(turn, cohorts[{}])", ("0", " -1")),
    ],
    "as many as are kept are kept in any order": [
        (_SPARES, "if len(counted) {} target:", ("<=", "<")),
    ],
    "on a host that is known there is one at least": [
        (
            _SPARES,
            "key=lambda each: (is_wanted(each), not each.is_warm, copies.get(each.host, ({})), each.id),",
            ("0, 0", " -1, 0", "0, -1"),
        ),
    ],
    "the copies of a processor ask for the same, and so do the containers of a mixed job": [
        (_STATUS, "if is_apart and (why := why_no_process(turn.view, job, slots[{}])):", ("0", " -1", " 1")),
        (_STATUS, "asked = SharedSlotId(job.name, {}) if job.model.is_mixed else slot", ("0", "-1", "1")),
        (
            _STATUS,
            (
                "slots = [SlotId(processor, each) for each in cohorts[{}].copies] if not "
                "job.model.is_mixed else []"
            ),
            ("0", " -1"),
        ),
    ],
    "only a command for one processor can name one that there is not": [
        (_COMMANDS, "{}", ("continue", "break")),
    ],
    "after one failure no other host is tried, because one is odd": [
        (_REQUESTS, "NAMED_FIRST: Final = {}", ("2", "1")),
    ],
    "it gets its number when all requests of the turn are known": [
        (
            _REQUESTS,
            (
                "self._found[slot] = RequestContainer({}, slot, host, kind, reason, cell, "
                "demand_of(need.job, slot))"
            ),
            ("0", " -1", " 1"),
        ),
    ],
    "the cell that is asked is one of those that are counted": [
        (_REQUESTS, "self.cells[cell] = self.cells.get(cell, {}) + 1", ("0", "-1", "1")),
    ],
    "the counts of cells are only compared with each other": [
        (_REQUESTS, "shared = dict.fromkeys(cells, {})", ("0", "-1", "1")),
        (_REQUESTS, "shared[sibling.host.cell] += {}", ("1", "2")),
    ],
    "it only saves a search: where nothing is requested or free, no move has begun": [
        (_ROOM_OF, "if lacking or (not is_known {} _has_reserved(turn, job)):", ("and", "or")),
        (_ROOM_OF, "return not job.model.is_mixed {} (is_asked or bool(turn.free(job)))", ("and", "or")),
    ],
    "the same for all containers": [
        (_SHARED, "actives if activates else {},", ("0", "-1", "1")),
    ],
    "the containers of a mixed job are asked for alike": [
        (_SHARED, "return why_none_waits(turn, job, SharedSlotId(job.name, {}), closed)", ("0", "-1", "1")),
    ],
    "there is only one": [
        (_TURN, "return cohorts[{}] if len(cohorts) == 1 else None", ("0", " -1")),
        ("appmaster/planning/rules/deploy.py", "cohort = cohorts[{}]", ("0", " -1")),
        (_MOVING, "if others and (len(cohort.copies) > 1 or cohort.copies[{}] in others):", ("0", " -1")),
    ],
    "the order of the copies that are compared stays the same": [
        (
            _FAILOVER,
            "load = turn.loads.of(container.id).actives if in_sync and cohort.job.model.is_mixed else {}",
            ("0", "-1", "1"),
        ),
        (_FAILOVER, "lag = start = {}", ("0", "-1")),
        (_FAILOVER, "leaves if in_sync else {},", ("2", "3")),
        (_FAILOVER, "start if in_sync else {},", ("0", "-1", "1")),
    ],
    "no lag comes near it": [
        (
            _FAILOVER,
            "lag += records if records is not None else {}",
            ("1 << 40", "2 << 40", "1 << 39", "1 << 41"),
        ),
    ],
    "the leader's clock is past its first millisecond": [
        (
            _FAILOVER,
            "if cohort.job.quarantined or view.now_ms < view.no_displacing.get(cohort.processor, {}):",
            ("0", "-1", "1"),
        ),
        (
            _FAILOVER,
            "if turn.view.now_ms >= turn.view.no_displacing.get(cohort.processor, {}):",
            ("0", "-1", "1"),
        ),
        (
            _NEEDS,
            "and turn.view.now_ms >= turn.view.no_displacing.get(cohort.processor, {})",
            ("0", "-1", "1"),
        ),
    ],
    "it only saves a search: where no container is missing or requested, none is needed": [
        (_NEEDS, "if missing <{} and not asked:", ("= 0", " 0", "= -1")),
    ],
    "an epoch is 0 or more": [
        (_FOLLOW, "seen = ahead.get(record.task, {})", ("0", "-1")),
        (_FOLD_CHANGES, "return recorded.record.epoch if recorded is not None else {}", ("0", "-1")),
        (
            _FOLD_CHANGES,
            (
                "if each.epoch > max(_epoch(view.records.get(each.replica.task)), "
                "view.ahead.get(each.replica.task, {}))"
            ),
            ("0", "-1"),
        ),
    ],
    "the records name one host for all copies in a container": [
        (_FOLD_CHANGES, "{}", ("break", "continue")),
    ],
    "of one of the tasks, a container has seen an epoch of 1 or more": [
        (_FOLLOW, "highest = max(ahead.get(task, {}) for task in cohort.tasks)", ("0", "-1", "1")),
    ],
    "the tasks of a processor belong to one job": [
        ("appmaster/planning/placement/left_state.py", "{}", ("continue", "break")),
        (_ELIGIBILITY, "job = cohorts[{}].job", ("0", " -1")),
        (
            _TURN,
            "ranked = sorted(found.values(), key=lambda each: self._rank(cohorts[{}].job, each[1]))",
            ("0", " -1"),
        ),
    ],
    "the only candidate is the best one": [
        (_ELIGIBILITY, "if len(candidates) < {}:", ("2", "1")),
        (_ELIGIBILITY, "return candidates[{}] if candidates else None", ("0", " -1")),
    ],
    "the parts of a processor are of one processor": [
        (_TURN, "tasks = len(cohorts[{}].job.model.processors[cohorts[0].processor].tasks)", ("0", " -1")),
        (_TURN, "tasks = len(cohorts[0].job.model.processors[cohorts[{}].processor].tasks)", ("0", " -1")),
        (_TURN, "for copy in cohorts[{}].copies:", ("0", " -1")),
        (_COMMANDS, "processor = cohorts[{}].processor", ("0", " -1")),
        (_PLANNED, "processor = cohorts[{}].processor", ("0", " -1")),
        (
            _REBALANCE,
            (
                "if move is None or move.processor != cohorts[{}].processor or move.processor in "
                "turn.handing_over:"
            ),
            ("0", " -1"),
        ),
    ],
    "a container of no known job unsettles nothing": [
        (_FOLD_CLUSTER, "bound = job.policy.lag_time_ms if job is not None else {}", ("0", "-1", "1")),
    ],
    "the records of a decision about the active agree": [
        ("appmaster/planning/fold/failovers.py", "new = action.changes[{}].record", ("0", " -1")),
        (
            "appmaster/planning/fold/from_actions.py",
            "active = action.changes[{}].record.active",
            ("0", " -1"),
        ),
    ],
    "if all are equal, they are equal to any of them": [
        (
            _PLANNED,
            (
                "if any(each.placed != records[{}].placed or each.moving or each.displaced is not None "
                "for each in records):"
            ),
            ("0", " -1"),
        ),
    ],
    "a copy that is active has a container here, and does not take over from itself": [
        (
            _PLANNED,
            "if main == cohort.record.active {} holder is None or turn.view.must_leave(holder):",
            ("or", "and"),
        ),
    ],
    "the same holds for all later copies": [
        (
            _PLACING,
            "{}  # the first copy is the first active: every active before any standby (SEP-23)",
            ("continue", "break"),
        ),
        (
            _PLACING,
            "{}  # a live copy is about to be promoted; this slot becomes a standby's then",
            ("continue", "break"),
        ),
    ],
    "it only saves a closer look, at a silence within the time-outs of every job, that finds no loss": [
        (_DETECT, "and view.now_ms {} each.heard_ms > shortest", ("-", "+")),
        (_DETECT, "and view.now_ms - each.heard_ms {} shortest", (">", ">=")),
    ],
    "an epoch is not negative": [
        (
            "appmaster/planning/rules/situations.py",
            (
                "return bool(ahead) and any(ahead.get(each.record.task, {}) > each.record.epoch for each "
                "in cohort.recorded)"
            ),
            ("0", "-1"),
        ),
    ],
    "without a commit behind the last one nothing follows from it": [
        (
            _SETTLING,
            "later = self._later(last, end) if last is not None and last.end {} end else []",
            ("<", "<="),
        ),
    ],
}

#: Module, line before, line after → why the behaviour stays the same.
EQUIVALENT: Final[Mapping[tuple[str, str, str], str]] = {
    (module, line.replace("{}", present), line.replace("{}", other)): reason
    for reason, changes in _BY_REASON.items()
    for module, line, (present, *others) in changes
    for other in others
}
