"""Plays every failover scenario and writes its story: ``python -m tests.scenarios.rewrite``.

Any difference to the committed files must be intended. ``[both]`` means that both policies have the same story. Of
mixed containers only the scenarios that the files already have are played.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tests.scenarios.left_out import left_out
from tests.scenarios.plays import played, story
from tests.scenarios.table import path, render, scenarios
from tests.scenarios.words import Flight, Scenario, Trigger, Under


def rows(flight: Flight) -> Iterator[Scenario]:
    """Yield the current scenarios of one operation in progress."""
    for trigger in Trigger:
        stories = {
            under: story(played(flight, trigger, under))
            for under in (Under.PROMOTE, Under.RESTART)
            if left_out(flight, trigger, under) is None
        }
        if len(stories) == 2 and stories[Under.PROMOTE] == stories[Under.RESTART]:
            yield Scenario(flight, trigger, Under.EITHER, stories[Under.PROMOTE])
        else:
            for under, told in stories.items():
                yield Scenario(flight, trigger, under, told)


def main() -> None:
    """Rewrite every file; print which of them have changed."""
    mixed = [each for each in scenarios() if each.under is Under.MIXED]
    for flight in Flight:
        again = [
            Scenario(flight, each.trigger, each.under, story(played(flight, each.trigger, each.under)))
            for each in mixed
            if each.flight is flight
        ]
        text = render(flight, [*rows(flight), *again])
        if text != path(flight).read_text(encoding="utf-8"):
            path(flight).write_text(text, encoding="utf-8")
            sys.stdout.write(f"{path(flight)}: rewritten\n")


if __name__ == "__main__":
    main()
