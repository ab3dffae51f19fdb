"""Applies the rules to hosts: finds the best one, or explains the result for all of them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from locality.hosts import HostInfo
from locality.question import PlacementQuestion, Verdict
from locality.rules import FILTERS, RANKINGS, Ranking, Survey, Weight


def best(question: PlacementQuestion, hosts: Sequence[HostInfo]) -> Verdict | None:
    """Return the first verdict of `Judgement.verdicts`, without computing the others; None if no host is allowed."""
    judgement = Judgement(question, hosts)
    field: Sequence[HostInfo] = judgement.allowed
    for weight in judgement.weights:
        if len(field) <= 1:
            break
        ranks = list(map(weight.rank, field))
        lowest = min(ranks)
        field = [host for host, rank in zip(field, ranks, strict=True) if rank == lowest]
    return judgement.verdict(field[0]) if field else None


def explain(
    question: PlacementQuestion, hosts: Sequence[HostInfo], present: HostInfo | None
) -> tuple[str, ...]:
    """Return why a copy is where it is, and why no other host is better: one line per host, its own first.

    A host that can be requested from several cells has a line for each of them, with the cell, if the texts differ; a
    refusal applies to the whole host. Without a ``present`` host every host is compared with the best one. The rules
    are applied now: the host that was best when the copy came may be second by now.
    """
    if present is not None:
        hosts = _with(hosts, present)
    judgement = Judgement(question, hosts)
    verdicts = list(judgement.verdicts())
    if present is not None:
        verdicts.sort(key=lambda each: (each.host, each.cell) != (present.name, present.cell))
    standard = next((each for each in verdicts if each.is_allowed or present is not None), None)
    lines: dict[tuple[str, str], list[int]] = {}
    for each in verdicts:
        if (
            standard is not None
            and each is not standard
            and not each.is_allowed
            and each.host == standard.host
        ):
            continue
        text = judgement.describe(each, standard, is_placed=present is not None)
        lines.setdefault((each.host, text), []).append(each.cell)
    several = Counter(host for host, _ in lines)
    return tuple(
        f"{host}{_in_cells(cells) if several[host] > 1 else ''}: {text}"
        for (host, text), cells in lines.items()
    )


def _in_cells(cells: Sequence[int]) -> str:
    return f" in cell {' and '.join(map(str, sorted(cells)))}"


def _with(hosts: Sequence[HostInfo], host: HostInfo) -> Sequence[HostInfo]:
    return (
        hosts if any((each.name, each.cell) == (host.name, host.cell) for each in hosts) else (*hosts, host)
    )


class Judgement:
    """The rules prepared for one question about some hosts, whose order makes no difference."""

    def __init__(self, question: PlacementQuestion, hosts: Sequence[HostInfo]) -> None:
        self._hosts = {(each.name, each.cell): each for each in hosts}
        self._refusals: list[Mapping[str, str]] = [each.refuse(question) for each in FILTERS]
        self._refused = set().union(*self._refusals)
        self.allowed = [each for each in hosts if each.name not in self._refused]
        survey = Survey(question, hosts, self.allowed)
        made = [(rule, rule.weigh(survey)) for rule in RANKINGS]
        self._ready: list[tuple[Ranking, Weight]] = [
            (rule, weight) for rule, weight in made if weight is not None
        ]
        self.weights = [weight for _, weight in self._ready]

    def verdicts(self) -> tuple[Verdict, ...]:
        """Return a verdict on every host, best first, refused ones last."""
        return tuple(sorted(map(self.verdict, self._hosts.values()), key=lambda each: each.rank))

    def verdict(self, host: HostInfo) -> Verdict:
        """Return one host's verdict with all its reasons."""
        if host.name in self._refused:
            refusals = [(at, each[host.name]) for at, each in enumerate(self._refusals) if host.name in each]
            reasons = tuple(dict.fromkeys(reason for _, reason in refusals))
            rank = (1, refusals[0][0], host.order, host.cell)
            return Verdict(host.name, False, reasons, rank, host.cell)
        ranks: list[Any] = [0]
        found: list[str] = []
        for weight in self.weights:
            ranks.append(weight.rank(host))
            found.extend(weight.reasons(host))
        return Verdict(host.name, True, tuple(found), tuple(ranks), host.cell)

    def describe(self, verdict: Verdict, standard: Verdict | None, *, is_placed: bool) -> str:
        """Return the text of a verdict, compared with the ``standard``: the copy's host, or else the best."""
        reasons = "; ".join(verdict.reasons)
        if verdict is standard and verdict.is_allowed:
            return f"{'it is here' if is_placed else 'the best'}: {reasons}"
        if verdict is standard:
            return f"it is here, but would not be placed here now: {reasons}"
        if not verdict.is_allowed:
            return f"refused: {reasons}"
        if standard is None or not standard.is_allowed:
            return f"allowed: {reasons}"
        return self._compared(
            self._hosts[verdict.host, verdict.cell], self._hosts[standard.host, standard.cell]
        )

    def _compared(self, host: HostInfo, standard: HostInfo) -> str:
        """Return the rule by which ``host`` is better or less good than ``standard``; both are allowed."""
        for rule, weight in self._ready:
            one, other = weight.rank(host), weight.rank(standard)
            if one != other:
                word, otherwise = (
                    ("better now", weight.better) if one < other else ("less good", weight.otherwise)
                )
                return f"{word} ({rule.name}): {'; '.join(weight.reasons(host)) or otherwise}"
        return "just as good"
