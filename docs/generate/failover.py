"""docs/failover.md: the rules of the planner, its other waits, and the failover scenarios."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from appmaster.planning.rules.table import STAGES, Decided, Rule, Stage
from appmaster.planning.state.actions import ForgetHandover, Kind
from appmaster.planning.state.job import Policy
from docs.generate.waits import WAITS
from standby.config import JobConfig
from tests.scenarios.left_out import LEFT_OUT
from tests.scenarios.table import scenarios
from tests.scenarios.words import STEPS, Flight, LeftOut, Scenario, Trigger

_HEAD: Final = """\
# What happens when something fails

The first section is for reading; the rules below it come from the code's own table, the scenarios from the files in
`tests/scenarios/failover`, each of which a test plays. `python -m docs.generate` writes the page.
Words are those of [architecture.md](architecture.md). Entries of the event log are set `like_this`; `standfast events
JOB` shows them.

## The two policies

An active and its standbys hold the same tasks on different hosts. **Invariant 1**: two copies of a task are never on
one host, placed, being moved or asked for; a granted container that would break it is given back and asked for again
(`same_host_refused`). **Invariant 2**: on a host, the active is started only after the standby there has stopped.

`job.hotstandby.failover: promote` (the default). The best standby becomes active where it is: no container is started
or stopped, so Invariant 2 holds inside its process. The best is in sync, on a host that may stay, in the container
with the fewest actives (mixed containers), quick to start, and behind by the fewest records, in this order. How quick
is what it measured last itself; times of which none is twice the other are alike. Where none is in sync the
least-lagging live copy takes over; where none lives the copy is started anew on its last host, else anywhere. The
lost copy comes back as a standby: on its old host if that is alive, since its state lies there.

**In sync, warm, hot.** A standby in sync has the state; what else a promotion waits for with Spark is a query and
its first batch. `job.hotstandby.query: hot`, the default, has the query run all the time, held at a gate a little
behind the active: what that has committed is let go about every 5 s, more often when more than 10,000 records come
meanwhile, and as soon as a promotion is ordered. The job's transform runs there as well, over one batch in 10 s and
for nothing. `warm` rehearses a start instead, until it gets no quicker, and every half minute.
`standfast tasks` tells for each standby what a start would take (`START MS`; `standfast_replica_start_seconds`);
one without it is in sync but cold. Where a container runs other tasks of the job as actives, or only some of its
standbys are promoted, a query has to be started anew for those that run then; so it has when the input at the gate
was deleted, or the query has failed, which harms no standby: it is begun again after 2 s, later and later up to a
minute. See [decision 23](decisions/0023-a-hot-query.md).

`job.hotstandby.failover: restart`. The flow of Samza's SEP-23, as the event log tells it:

| step | what the proposal says | what the log shows |
|---|---|---|
| 1 | ask for the host where the active was last; if it is had, start it there and be done | `container_lost`, \
`container_requested` (`preferred`), `request_granted`, `decided_bind` (`in_place`) |
| 2 | the request expires: find the standby's host | `decided_displace` |
| 3, 4 | delete the standby's locality; set the active's to that host | the same decision: one write of the records |
| 5 | stop the standby | `standby_stopped`, when its container confirms it |
| 6 | ask for that host, meanwhile | `container_requested` (`reservation`), `request_granted` |
| 7 | both confirmed: start the active there | `decided_failover`, `failover_started`, `failover_finished` |
| 8 | ask for any host for the displaced standby | `container_released`, `container_requested`, `decided_bind` |

(The proposal's list begins anew after its first step; its own text counts as this one does, and numbers the end 6 and
7.) YARN holds no host free, so the reservation is an *empty container* there. When it does not come the standby is
restored in place (`decided_restore`) and the active is asked for anywhere; for four times
`job.hotstandby.samehost.timeout.ms` no standby is displaced again. A standby that does not confirm its stop is ended:
its death confirms it. Where no standby lives the active is started on its last host, else anywhere.

A lost **standby** is asked for on its last host, then anywhere (flow B); nobody else is touched, under either policy.

**What is counted.** A container that dies, falls silent or fails is one failure of its role
(`standfast_container_failures_total`). Each processor whose active moves to an in-sync standby is one failover
(`standfast_failovers_total`); where no standby could take over it is counted by reason instead
(`standfast_failovers_without_standby_total`). An active that is started again on its own host is a failure and no
failover, although `failover_started` and `failover_finished` are told for its times. **Planned stops** (drains,
hand-overs, upgrades, moves, a displaced standby's stop, undeploying) are never failures, and spend nothing of a retry
budget. A leader that takes over while a lost active waits for its own host tells of the loss once more, since it cannot
know what was told before (reason `gone-before-takeover`). Every decision names the rule below that took it (`data.rule`
of its entry).

"""

_RULES: Final = """\
## The rules

For every processor that is not settled the leader asks these from the top, and the first that has something to decide
decides; nobody is told of it before it is in ZooKeeper. The rules of one stage are asked for one group of tasks (those
that are placed alike) after the other. A rule whose step is not due leaves the word to those below it. That an active
is lost is itself a judgement: the table of waits has it, and a leader that takes over tells what was lost before it
came (`container_lost`, reason `gone-before-takeover`). When nothing is left to decide in a mixed job, its actives are
evened out by planned hand-overs, one at a time.
"""

_WAITS: Final = """\
## The other waits

What no rule of the table above has, and is waited for all the same.
"""

_SCENARIOS: Final = """\
## Who fails, while what is in flight

Every combination of a trigger with what was under way, by policy. There is one standby (where nothing else is said),
and there are hosts enough. What was under way is held up for four seconds after the trigger, so that it does not just
end in time. An empty last column: nothing is counted. The words stand for entries of the event log, in its order:
"""


def page() -> str:
    """Return the whole page, Markdown."""
    rows = scenarios()
    parts = (
        [_HEAD + _RULES],
        _rules(),
        ["", _WAITS],
        _waits(),
        ["", _SCENARIOS],
        _words(),
        *(["", *_scenarios(each, rows)] for each in Flight),
        ["", *_left_out(), ""],
    )
    return "\n".join(line for part in parts for line in part)


def _rules() -> Iterator[str]:
    yield "| stage | rule | situation | decides | waits at most | then | else | told and counted |"
    yield "|---|---|---|---|---|---|---|---|"
    for stage in STAGES:
        for rule in stage.rules:
            yield (
                f"| {_stage(stage, rule)} | {rule.name} | {rule.situation} "
                f"| {', '.join(_decided(each) for each in rule.decides)} | {_deadline(rule.deadline)} "
                f"| {rule.comes} | {rule.otherwise or '–'} | {_told(rule)} |"
            )


def _stage(stage: Stage, rule: Rule) -> str:
    if rule is not stage.rules[0]:
        return ""
    return f"**{stage.name}**" + (": nothing below is asked" if stage.is_last else "")


def _decided(decided: Decided) -> str:
    if isinstance(decided, Kind):
        return f"`decided_{decided.value.replace('-', '_')}`"
    return "the hand-over's end" if decided is ForgetHandover else "the hand-over's beginning"


def _told(rule: Rule) -> str:
    told = [f"`{each}`" for each in rule.events] + [f"`{each.name}`" for each in rule.counted]
    return ", ".join(told) or "–"


def _deadline(name: str) -> str:
    """Return how people know a bound: its key, or its value where it has none."""
    if not name:
        return "–"
    for each in dataclasses.fields(JobConfig):
        if each.name == name and "key" in each.metadata:
            return f"`{each.metadata['key'].name}`"
    return f"{getattr(Policy(), name)} ms"


def _waits() -> Iterator[str]:
    yield "| waits for | at most | then | else | told |"
    yield "|---|---|---|---|---|"
    for each in WAITS:
        told = ", ".join(f"`{event}`" for event in each.events) or "–"
        yield f"| {each.awaited} | {_deadline(each.deadline)} | {each.comes} | {each.otherwise} | {told} |"


def _words() -> Iterator[str]:
    yield ", ".join(f"*{word}* `{event}`" for word, event in STEPS.items()) + "."


def _scenarios(flight: Flight, rows: Sequence[Scenario]) -> Iterator[str]:
    yield f"### {flight.value}"
    yield ""
    yield "| what happens | policy | what follows | counted |"
    yield "|---|---|---|---|"
    triggers = list(Trigger)
    ordered = sorted(
        (each for each in rows if each.flight is flight), key=lambda row: triggers.index(row.trigger)
    )
    for trigger, of_trigger in groupby(ordered, key=lambda row: row.trigger):
        for at, row in enumerate(of_trigger):
            yield _row("" if at else trigger.value, row)


def _row(trigger: str, row: Scenario) -> str:
    steps = " → ".join(row.story.steps) or "nothing: all goes on"
    counted = ", ".join(each.value for each in row.story.counted)
    return f"| {trigger} | {row.under.value} | {steps} | {counted} |"


def _left_out() -> Iterator[str]:
    yield "### Left out"
    yield ""
    yield "What cannot be; a test shows that nobody could be hit. The first line that fits speaks."
    yield ""
    yield "| what happens | while | policy | why it cannot be |"
    yield "|---|---|---|---|"
    for each in LEFT_OUT:
        yield (
            f"| {_names(each.triggers, len(Trigger))} | {_flights(each)} "
            f"| {', '.join(under.value for under in each.under)} | {each.why} |"
        )


def _names(triggers: tuple[Trigger, ...], every: int) -> str:
    return "anything" if len(triggers) == every else "; ".join(each.value for each in triggers)


def _flights(left: LeftOut) -> str:
    missing = [each for each in Flight if each not in left.flights]
    if len(missing) < len(left.flights):
        return "all but: " + "; ".join(_short(each) for each in missing)
    return "; ".join(_short(each) for each in left.flights)


def _short(flight: Flight) -> str:
    return flight.value.split(":", 1)[0].split(",", 1)[0].lower()
