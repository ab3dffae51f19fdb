"""docs/failover.md: the two policies, the rules of the planner and its other waits."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Final

from appmaster.planning.rules.table import STAGES, Decided, Rule, RuleStage
from appmaster.planning.state.actions import DecisionKind, ForgetHandover
from appmaster.planning.state.job import PlannerPolicy
from docs.generate.waits import WAITS
from standby.config import JobConfig

_HEAD: Final = """\
# Failover

For operators and developers: what the leader does when a process, a host or the leader itself fails, and what it
counts. [failover-scenarios.md](failover-scenarios.md) shows each failure in combination with what was under way;
[troubles.md](troubles.md) has the operator's view. Terms are those of the [glossary](glossary.md). Names set
`like_this` are entries of the [event log](events.md), which `standfast events JOB` shows.

The sections on rules and waits are generated from the code's own tables by `python -m docs.generate`.

## Placement

An active and its standbys hold the same tasks on different hosts. Two invariants always hold:

1. Two copies of a task are never on the same host, whether placed, being moved, or requested. A granted container
   that would break this is given back and requested again (`same_host_refused`).
2. On a host, the active starts only after the standby there has stopped.

## Policy `promote`

`job.hotstandby.failover: promote` is the default. When an active is lost, the best standby becomes active where it
is. No container is started or stopped; invariant 2 holds inside the container.

Candidates are compared in this order:

1. in sync before not in sync;
2. on a host and in a cell that may stay: not drained, not lost;
3. in another cell than the lost container, since a cell can fail as a whole;
4. in the container with the fewest actives (mixed containers only);
5. the shortest start, as the standby measured it last. Start times are compared by class: below 0.5 s, 1 s, 2 s and
   so on;
6. the smallest lag.

If no standby is in sync, the live copy with the smallest lag takes over (being in another cell still decides first). If
no copy lives, the task is started again on its last host, or else on any host. The lost copy is created again as a
standby, on its old host if that is alive, because its state is there. Its container is requested when every
take-over of the job is over, after 3 s at the latest, so that the start of a process does not compete with a take-over.

A planned hand-over goes only to a copy in sync, and compares copies in the same order, with one point more: after 3, a
container that is warm comes before one that is not (unless `job.hotstandby.warm` is `false`). In 4, actives that are
just being handed over to a container count, too.

## Standbys in sync, and warm

A standby in sync has the task's state. To process its first batch, it also needs a connection to the brokers and, if
Spark runs the job's transform, a JVM with it. A standby that has these is *warm*. With `job.hotstandby.warm`,
the default, a container that feeds no task keeps them ready ([decision 46](decisions/0046-one-feed.md)):

- a consumer is connected to the brokers;
- the JVM is started, and the plan of the job's transform is made;
- the transform is rehearsed over some of the input's last records (at most 500), and the result is discarded: at first
  6 to 30 times, until that gets no faster, so that its code is compiled, once as a large batch, which has a plan of
  its own, and then once every 10 s. An input without records is replaced by a row without content
  until there are some. A rehearsal that takes more than three minutes is ended, because it may hang, and is the last
  one. A container that was not warm before is warm once it has run a batch. Records over which a process of the host
  ended while it rehearsed them, whatever ended it, are left out on that host. For this the process leaves a note in
  the folder `rehearsals` of the job's run, beside the state, and takes it back afterwards.

A promotion waits for the rehearsal that is just running, if any, and ends it after 10 s; no other one begins for 2 s.
When the offsets are claimed, the consumer reads from them at once. With `job.hotstandby.warm: false` a standby starts
no JVM. Its promotion does so, which takes seconds.

A container that is promoted before it is warm does not wait for its JVM: until that is warm, another container of
the job runs the transform over its batches, one without actives if possible, and everything else happens here
([decision 48](decisions/0048-a-borrowed-transform.md)). Containers of the same revision with a warm JVM lend theirs.
The container's log says which one does, and `standfast_lent_batches_total` counts at the lender. If there is none, as
in a job with one processor whose warm copies are all lost, the take-over waits for the JVM and for its first batch.
The first rehearsals continue beside a borrowed transform.

The column `START MS` of `standfast tasks` (metric `standfast_replica_start_duration_seconds`) shows for each standby
how long the last rehearsal took. A standby without a value is not warm, or its input has had no records yet.

If the container already has actives of the job, its feed is restarted for all of them, with a new consumer.

## Policy `restart`

`job.hotstandby.failover: restart` is the flow of Samza's SEP-23:

| step | SEP-23 | event log |
|---|---|---|
| 1 | request the active's last host; if granted, start the active there and stop here | `container_lost`, \
`container_requested` (`preferred`), `request_granted`, `decided_bind` (`in_place`) |
| 2 | the request expires: find the standby's host | `decided_displace` |
| 3, 4 | delete the standby's locality; set the active's to that host | the same decision: one write of the records |
| 5 | stop the standby | `standby_stopped`, when its container confirms it |
| 6 | meanwhile request that host | `container_requested` (`reservation`), `request_granted` |
| 7 | both confirmed: start the active there | `decided_failover`, `failover_started`, `failover_finished` |
| 8 | request any host for the displaced standby | `container_released`, `container_requested`, `decided_bind` |

(In the proposal the list restarts after its first step. Its text counts as above, but numbers the last two steps 6
and 7.)

YARN cannot reserve a host, so the reservation is an *empty container* on it. If that is not granted in time, the
standby is restored in place (`decided_restore`), the active is requested on any host, and no standby is displaced for
four times `job.hotstandby.samehost.timeout.ms` or, if that is longer, `cluster-manager.container.request.timeout.ms`.
A standby that does not confirm its stop is killed; its death confirms the stop. If no standby lives, the active is
started on its last host, or else on any host. The move of a standby that is to be displaced is given up.

## A lost standby

Under either policy a lost standby is requested on its last host, then on any host (flow B of SEP-23). Other copies
are not affected.

## What is counted

- A container that dies, becomes silent or fails is one failure of its role (`standfast_container_failures_total`),
  which is `mixed` if it had both.
  A new leader counts one that it finds dead only if the records still have a copy there: else a former leader has
  counted its loss, or it was never used.
- Each processor whose active moves to an in-sync standby is one failover (`standfast_failovers_total`). If no standby
  could take over, it is counted by reason in `standfast_failovers_without_standby_total` instead.
- Under `restart`, an active that is started again on its own host is a failure but no failover. `failover_started`
  and `failover_finished` are still written, for the times.
- **Planned stops** (drains, hand-overs, upgrades, moves, the stop of a displaced standby, undeploying) are never
  failures and do not use up the retry budget.
- A new leader that takes over while a lost active waits for its own host reports the loss again, because it cannot
  know whether the former leader did (reason `gone-before-takeover`).
- Every decision names the rule below that made it (`data.rule` of its entry).

"""

_RULES: Final = """\
## The rules

The leader checks these rules from the top for every processor that is not settled. The first rule with something to
decide decides, and the decision is written to ZooKeeper before any container receives it. Within a stage, all rules
are checked for one cohort (tasks with the same placement), then for the next. A rule whose step is not due yet decides
nothing, and the rules below it are checked.

That an active is lost is itself a decision: see [the other waits](#the-other-waits). A new leader reports what was
lost before its election (`container_lost`, reason `gone-before-takeover`). The rule *rebalance* is checked for settled
processors too, once nothing is left to decide about their job ([below](#actives-are-spread-again)).
"""

_SPREAD: Final = """\
## Actives are spread again

After failovers one host may have many actives of a job and another none. Once every copy of the job is in place and in
sync, and nothing has happened for 10 s, planned hand-overs spread the actives evenly again
([decision 42](decisions/0042-actives-are-spread-again.md)):

- *Even* is the least sum of squares of active processors per host that the existing copies permit, since an active can
  only change places with its own standbys. If the copies permit it, hosts differ by one active at most. In a job with
  mixed containers, actives are counted per container instead. Other jobs of the cluster decide only between otherwise
  equal hand-overs.
- There is one hand-over at a time in the whole cluster. The next one begins when the former active is a standby in sync
  and 10 s have passed. Each hand-over leads to a more even spread, so actives never oscillate. After two hand-overs per
  processor without an even spread, there are no more until a container is lost.
- Only a copy that is in sync and warm takes over. If it does not get ready within 10 s, the hand-over is given up
  (`handover_given_up`) and tried again after a pause that doubles each time.
- An active that an operator moved (`standfast handover`) is not moved to spread actives. Others may move because of it.
  It is still handed over when it has to be: when its host is drained, in an upgrade, or if all copies of its tasks
  could be lost together and a move of this copy parts them best. In this last case a hand-over may be followed by one
  back within a second; its reason is `exposed`.
- It is a planned hand-over: `handover_started` and `handover_finished` have the reason `rebalance`, and it is counted
  in `standfast_handovers_total`, never as a failure or a failover. The same applies under policy `restart`, which only
  decides how a lost active is started again.

With `job.locality.rebalance: manual` actives stay where they are. `standfast rebalance JOB` spreads them at once, with
either value, without the pauses, and including actives that an operator moved. `standfast status JOB` shows how actives
are spread and, if not evenly, why; `standfast_active_processors` counts them per host.

"""

_WAITS: Final = """\
## The other waits

Every wait of the leader that is not in the table above.
"""


def page() -> str:
    """Return the whole page, Markdown."""
    parts = ([_HEAD + _RULES], _rules(), ["", _SPREAD + _WAITS], _waits(), [""])
    return "\n".join(line for part in parts for line in part)


def _rules() -> Iterator[str]:
    yield "| stage | rule | situation | decides | waits at most | then | else | entries and metrics |"
    yield "|---|---|---|---|---|---|---|---|"
    for stage in STAGES:
        for rule in stage.rules:
            yield (
                f"| {_stage(stage, rule)} | {rule.name} | {rule.situation} "
                f"| {', '.join(_decided(each) for each in rule.decides)} | {_deadline(rule.deadline)} "
                f"| {rule.comes} | {rule.otherwise or '–'} | {_entries(rule)} |"
            )


def _stage(stage: RuleStage, rule: Rule) -> str:
    if rule is not stage.rules[0]:
        return ""
    return f"**{stage.name}**" + (": nothing below is checked" if stage.is_last else "")


def _decided(decided: Decided) -> str:
    if isinstance(decided, DecisionKind):
        return f"`decided_{decided.value.replace('-', '_')}`"
    return "the hand-over's end" if decided is ForgetHandover else "the hand-over's beginning"


def _entries(rule: Rule) -> str:
    named = [f"`{each}`" for each in rule.events] + [f"`{each.name}`" for each in rule.counted]
    return ", ".join(named) or "–"


def _deadline(name: str) -> str:
    """Return a bound as the page shows it: its key, or its value if it has no key."""
    if not name:
        return "–"
    for each in dataclasses.fields(JobConfig):
        if each.name == name and "key" in each.metadata:
            return f"`{each.metadata['key'].name}`"
    return f"{getattr(PlannerPolicy(), name)} ms"


def _waits() -> Iterator[str]:
    yield "| waits for | at most | then | else | entries |"
    yield "|---|---|---|---|---|"
    for each in WAITS:
        entries = ", ".join(f"`{event}`" for event in each.events) or "–"
        yield f"| {each.awaited} | {_deadline(each.deadline)} | {each.comes} | {each.otherwise} | {entries} |"
