"""Runs stories: one seed, many, or the command behind ``make simulate``."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from tests.simulation.faults import suffer
from tests.simulation.mutations import MUTATIONS
from tests.simulation.world import World

#: Lines of a failed story that are shown.
LINES = 60

#: Seeds that a process takes at a time.
CHUNK = 20


@dataclass(frozen=True)
class Failure:
    """A story that broke an invariant."""

    seed: int
    invariant: str
    story: str

    def __str__(self) -> str:
        return f"seed {self.seed} broke an invariant: {self.invariant}\n{self.story}"


def run_seed(
    seed: int, only: Sequence[str] = (), *, is_pool: bool = False, has_spares: bool = False
) -> Failure | None:
    """Return what broke in the story of ``seed``; None when every invariant held and the job was whole at the end."""
    world = World(seed, is_pool=is_pool, has_spares=has_spares)

    def tell() -> None:
        suffer(world, only)
        world.settle()

    return told(world, tell)


def told(world: World, tell: Callable[[], object]) -> Failure | None:
    """Return what broke while ``tell`` played a story of ``world``; None when nothing did."""
    try:
        tell()
    except Exception as error:  # noqa: BLE001 - whatever a story ends with is a finding
        return Failure(world.clock.seed, _first_line(error), world.clock.story(LINES))
    return None


def story_of(seed: int, lines: int, *, is_pool: bool = False, has_spares: bool = False) -> str:
    """Return the last lines of a seed's story, however it ends."""
    world = World(seed, is_pool=is_pool, has_spares=has_spares)
    try:
        suffer(world)
        world.settle()
    except Exception as error:  # noqa: BLE001 - as above
        world.clock.tell("{}", _first_line(error))
    return world.clock.story(lines)


def _first_line(error: Exception) -> str:
    text = str(error).split("; the last events:")[0].strip()
    if type(error).__name__ == "BrokenInvariant":
        return text
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {text} ({where.name}, line {where.lineno} of {where.filename.rsplit('/', 1)[-1]})"


def _run_chunk(seeds: Sequence[int], *, is_pool: bool, has_spares: bool) -> tuple[int, list[Failure]]:
    found = (run_seed(seed, is_pool=is_pool, has_spares=has_spares) for seed in seeds)
    return len(seeds), [each for each in found if each is not None]


def run_seeds(
    seeds: Sequence[int], jobs: int = 1, *, is_pool: bool = False, has_spares: bool = False
) -> Iterator[tuple[int, list[Failure]]]:
    """Yield, chunk by chunk, how many stories ran and which of them failed."""
    chunks = [seeds[first : first + CHUNK] for first in range(0, len(seeds), CHUNK)]
    run = partial(_run_chunk, is_pool=is_pool, has_spares=has_spares)
    if jobs == 1:
        yield from map(run, chunks)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap_unordered(run, chunks)


def parse_seeds(text: str) -> range:
    """Return the seeds that ``text`` names: how many (from 0), or a range such as 5000-6000."""
    first, dash, last = text.partition("-")
    return range(int(first), int(last) + 1) if dash else range(int(first))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return 1 when an invariant was broken."""
    parser = argparse.ArgumentParser(
        prog="simulate", description="Random faults in virtual time, under every invariant."
    )
    parser.add_argument("seeds", help="how many, or a range such as 5000-6000")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failing seed")
    parser.add_argument("--pool", action="store_true", help="with a pool in place of YARN")
    parser.add_argument("--spares", action="store_true", help="with spare containers")
    parser.add_argument("--mutate", choices=sorted(MUTATIONS), help="plant this bug")
    parser.add_argument(
        "--story", type=int, metavar="LINES", help="print the end of each story, broken or not"
    )
    options = parser.parse_args(arguments)
    seeds = parse_seeds(options.seeds)
    with ExitStack() as planted:
        if options.mutate:
            planted.enter_context(MUTATIONS[options.mutate].plant())
        if options.story:
            for seed in seeds:
                story = story_of(seed, options.story, is_pool=options.pool, has_spares=options.spares)
                print(story)
            return 0
        return _report(
            seeds,
            options.jobs,
            keep_going=options.keep_going,
            is_pool=options.pool,
            has_spares=options.spares,
        )


def _report(seeds: range, jobs: int, *, keep_going: bool, is_pool: bool, has_spares: bool) -> int:
    begun = shown = time.monotonic()
    done = failed = 0
    for count, failures in run_seeds(seeds, jobs, is_pool=is_pool, has_spares=has_spares):
        done += count
        failed += len(failures)
        for each in failures:
            print(each, flush=True)
        now = time.monotonic()
        if now - shown > 5 or done == len(seeds) or failures:
            shown = now
            rate = done / max(now - begun, 0.001)
            print(
                f"{done} of {len(seeds)} stories, {failed} broke an invariant, {rate:.1f} a second",
                flush=True,
            )
        if failures and not keep_going:
            return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
