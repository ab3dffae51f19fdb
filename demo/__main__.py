"""``python -m demo``: the demonstration on real servers, which ``make demo`` and ``make demo-standalone`` run.

Exit status: 0 if nothing was lost, duplicated or wrong and every replica came back; 1 otherwise; 130 and 143
after Ctrl-C and SIGTERM. In every case nothing is left running, unless --keep is given.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from demo.command import ROOT
from demo.hosts import POOL, YARN
from demo.interrupt import Interrupted, Interrupts
from demo.network import enter
from demo.own_cluster import hosts_of_our_own
from demo.run import Options, run
from demo.screen import Screen
from standby.errors import StandfastError

#: Where the report of a run on a pool goes.
STANDALONE: Final = ROOT / "build" / "demo-standalone"


def parse(argv: Sequence[str] | None) -> tuple[Options, bool]:
    """Return the options of the run, and whether to keep the cluster."""
    defaults = Options()
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__.partition("\n\n")[0])

    def number(name: str, default: float, text: str) -> None:
        parser.add_argument(name, type=type(default), default=default, help=f"{text} (default: %(default)s)")

    number("--rate", defaults.rate, "records per second while things are killed")
    number("--fast-rate", defaults.fast_rate, "records per second for the rest")
    number("--rows", defaults.rows, "flights to stream")
    number("--partitions", defaults.partitions, "input partitions, that is tasks")
    number("--steady-seconds", defaults.steady_seconds, "undisturbed flow before each failure")
    number("--heartbeat-timeout-ms", defaults.heartbeat_timeout_ms, "silence after which a container is lost")
    parser.add_argument(
        "--on", choices=(YARN, POOL), default=YARN, help="what starts containers (default: %(default)s)"
    )
    parser.add_argument(
        "--output",
        type=Path,
        help="directory of report and picture (default: build/demo, or build/demo-standalone)",
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key of the job")
    parser.add_argument("--keep", action="store_true", help="leave cluster and job running at the end")
    arguments = parser.parse_args(argv)
    is_pool = arguments.on == POOL
    if is_pool and arguments.keep:
        parser.error("--keep: a pool is in a network of its own, which nothing else reaches")
    pairs = [text.partition("=") for text in arguments.set]
    if any(not separator for _, separator, _ in pairs):
        parser.error("--set: KEY=VALUE is needed")
    options = Options(
        rate=arguments.rate,
        fast_rate=arguments.fast_rate,
        rows=arguments.rows,
        partitions=arguments.partitions,
        steady_seconds=arguments.steady_seconds,
        heartbeat_timeout_ms=arguments.heartbeat_timeout_ms,
        output=arguments.output or (STANDALONE if is_pool else defaults.output),
        settings={name: value for name, _, value in pairs},
        is_kept=arguments.keep,
        on=arguments.on,
    )
    return options, arguments.keep


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; return its exit status."""
    options, is_kept = parse(argv)
    try:
        if options.on == POOL:
            enter(["-m", "demo", *(sys.argv[1:] if argv is None else argv)])
        with (
            Interrupts() as interrupts,
            Screen() as screen,
            hosts_of_our_own(
                options.on, screen, interrupts, options.output / "logs", is_kept=is_kept
            ) as cluster,
        ):
            return run(options, cluster, screen)
    except Interrupted as interrupted:
        if interrupted.__cause__ is not None:
            print(f"demo: interrupted: {interrupted.__cause__!r}", file=sys.stderr)
        return interrupted.exit_status
    except StandfastError as error:
        print(f"demo: {error}", file=sys.stderr)
        return error.exit_status


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    # Daemon threads of client libraries could delay the interpreter's exit for seconds.
    os._exit(status)
