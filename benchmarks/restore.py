"""The time to restore a lost state: ``python -m benchmarks.restore``.

The same changelog (10 million records of 16 + 100 bytes, 5 million keys; written in transactions, read committed) is
restored into an empty state by a container of standfast that replays it, by one that fetches the state from a peer,
by Kafka Streams, and, with 2 million records, by Quix Streams. Each is a separate process on the same broker; there
are at least five rounds, and the order rotates. Every restored state is counted and summed, and must match the
records. Writes JSON and a picture: wall and CPU seconds (of all processes of the contestant, and again after its
background work such as compaction) and peak memory.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.broker import arena
from benchmarks.contest import ROOT, Contestant, compete, say
from benchmarks.dataset import Dataset, fill, make_topic
from benchmarks.kafkastreams.build import java_command
from benchmarks.kernel import keys_in
from benchmarks.quix import venv
from benchmarks.report import Report
from standby.errors import Unavailable

OURS: Final = "standfast, changelog"
PEER: Final = "standfast, peer copy"
STREAMS: Final = "Kafka Streams"
STREAMS_THREADS: Final = "Kafka Streams, a thread a partition"
STREAMS_TUNED: Final = "Kafka Streams, larger fetches"
QUIX: Final = "Quix Streams"
ALL: Final = (OURS, PEER, STREAMS, STREAMS_THREADS, STREAMS_TUNED, QUIX)

#: After these seconds a contestant is given up: generous, for a busy machine.
_SECONDS: Final = 60.0
_SECONDS_A_MILLION: Final = 120.0

_MEASURES: Final = (
    ("wall_seconds", "wall, s", 1.0),
    ("cpu_seconds", "CPU, s", 1.0),
    ("settled_cpu_seconds", "CPU with what follows, s", 1.0),
    ("peak_bytes", "peak memory, MB", 1e-6),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; return 0 if every contestant finished with the right state, else 1."""
    arguments = _arguments(argv)
    report = Report(arguments.output, "Restore", _MEASURES, arguments)

    def measure() -> None:
        with arena(arguments.scratch) as (bootstrap, scratch):
            for partitions in arguments.partitions:
                _Contest(arguments, bootstrap, scratch, partitions, report).run()

    return report.carry_out(measure)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.restore", description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--quix-records", type=int, default=2_000_000)
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=ALL, default=ALL, help="some contestants (default: all)")
    parser.add_argument(
        "--scratch", type=Path, help="where the states are put (default: the temporary directory)"
    )
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "benchmarks" / "restore.json")
    return parser.parse_args(argv)


class _Contest:
    """All contestants over one number of partitions."""

    def __init__(
        self, arguments: argparse.Namespace, bootstrap: str, scratch: Path, partitions: int, report: Report
    ) -> None:
        self._arguments = arguments
        self._bootstrap = bootstrap
        self._scratch = scratch / f"p{partitions}"
        self._partitions = partitions
        self._report = report

    def run(self) -> None:
        """Measure all contestants, and report."""
        # With one partition it can use only one thread.
        alone = {QUIX, STREAMS_THREADS} if self._partitions == 1 else {QUIX}
        names = [each for each in self._arguments.only if each not in alone]
        if names:
            self._compete(self._arguments.records, names)
        if QUIX in self._arguments.only:
            # The others again with equally many records, for comparison; not needed if Quix Streams is
            # skipped.
            opponents = [each for each in names if each in (OURS, STREAMS)]
            try:
                self._compete(self._arguments.quix_records, [*opponents, QUIX], venv.python())
            except Unavailable as error:
                self._report.skip(f"{QUIX}, {self._partitions} partitions", error)

    def _compete(self, records: int, names: Sequence[str], quix: Path | None = None) -> None:
        data = Dataset(records, records // 2, self._partitions)
        topic = f"restore-{'few' if quix else 'all'}-{self._partitions}"
        label = f"{records:,} records, {self._partitions} partitions{', with Quix Streams' if quix else ''}"
        say(f"writing {label}")
        if set(names) - {QUIX}:
            fill(self._bootstrap, topic, data)
            # standfast reads its input as well; it is empty.
            make_topic(self._bootstrap, f"{topic}-in", data.partitions)
        keys, checksum = data.expected()
        expected = {"keys": keys, "checksum": f"{checksum:016x}"}
        contestants = [self._contestant(each, topic, data, quix) for each in names]
        compete(
            self._report.case(label, names),
            contestants,
            self._arguments.rounds,
            _SECONDS + _SECONDS_A_MILLION * records / 1e6,
            self._arguments.output.parent / "logs",
            label,
            partial(_wrong, expected),
        )

    def _contestant(self, name: str, topic: str, data: Dataset, quix: Path | None) -> Contestant:
        state = self._scratch / topic / name.replace(" ", "-").replace(",", "")
        clean: Callable[[], None] = partial(shutil.rmtree, state, ignore_errors=True)
        if name in (OURS, PEER):
            return self._ours(name, topic, state, clean)
        if name == QUIX:
            assert quix is not None
            common = [
                *("--bootstrap", self._bootstrap, "--topic", f"{topic}-quix", "--group", f"quix-{topic}"),
                *(
                    "--partitions",
                    str(data.partitions),
                    "--records",
                    str(data.records),
                    "--state",
                    str(state),
                ),
            ]
            program = [str(quix), "-m", "benchmarks.quix.restore"]
            _prepare([*program, "prepare", *common])
            return Contestant(name, [*program, "restore", *common], clean)
        more = {
            STREAMS: (),
            STREAMS_THREADS: (f"num.stream.threads={data.partitions}",),
            STREAMS_TUNED: (
                "restore.consumer.max.poll.records=10000",
                "restore.consumer.max.partition.fetch.bytes=8388608",
                "restore.consumer.receive.buffer.bytes=1048576",
            ),
        }[name]
        program = java_command("RestoreStreams", heap_mb=1024)
        application = f"{topic}-{ALL.index(name)}"
        arguments = [self._bootstrap, application, topic, str(data.partitions), str(state), *more]
        return Contestant(name, [*program, *arguments], clean)

    def _ours(self, name: str, topic: str, state: Path, clean: Callable[[], None]) -> Contestant:
        common = [
            *(sys.executable, "-m", "benchmarks.restore_ours"),
            *(["changelog" if name == OURS else "peer", "--bootstrap", self._bootstrap, "--topic", topic]),
            *("--partitions", str(self._partitions), "--state", str(state)),
        ]
        if name == OURS:
            return Contestant(name, common, clean)
        credentials = self._scratch / "credentials"
        keys_in(credentials)
        provider = self._scratch / topic / "provider"
        return Contestant(
            name, [*common, "--provider-state", str(provider), "--credentials", str(credentials)], clean
        )


def _prepare(command: Sequence[str]) -> None:
    """Let Quix Streams' own program write its changelog; raises `Unavailable`."""
    try:
        subprocess.run(command, cwd=ROOT, check=True, timeout=3_600)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"its changelog cannot be written: {error}") from error


def _wrong(expected: Mapping[str, Any], answer: Mapping[str, Any]) -> str | None:
    wrong = [
        f"{key} {answer.get(key)} instead of {value}"
        for key, value in expected.items()
        if answer.get(key) != value
    ]
    return f"the restored state is not right: {', '.join(wrong)}" if wrong else None


if __name__ == "__main__":
    sys.exit(main())
