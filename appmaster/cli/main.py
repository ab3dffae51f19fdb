"""The command ``standfast``: one parser, onto which each command module mounts its own commands.

A command module has a function ``add_commands(subparsers)``. Each parser that it adds names the function that carries
the command out, ``parser.set_defaults(run=function)``: a function of the parsed arguments that returns the exit
status. It reports failure by raising one of :mod:`standby.errors`, which is printed here as one line on standard error
and determines the exit status (``exit_status``).
"""

from __future__ import annotations

import argparse
import logging
import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

import embedded.cli
from appmaster.cli.clusters import candidates, cells, credentials, drain, nodes, protect, rekey, standalone
from appmaster.cli.jobs import change, command, stop, submit, topics
from appmaster.cli.reading import get, observe, placement
from appmaster.cli.run import command as run_command
from appmaster.cli.shared.foreign import translated
from appmaster.cli.shared.output import complain
from appmaster.cli.shared.undo import EndedBySignal
from standby.errors import StandfastError
from standby.shared.version import version

#: A shell reports this plus the signal's number for a process that a signal ended.
SIGNALLED: Final = 128

#: Mounted in this order, which is the order of the help text.
COMMAND_MODULES: Final[tuple[Callable[[argparse._SubParsersAction[argparse.ArgumentParser]], None], ...]] = (
    submit.add_commands,
    change.add_commands,
    observe.add_commands,
    get.add_commands,
    placement.add_commands,
    command.add_commands,
    drain.add_commands,
    topics.add_commands,
    cells.add_commands,
    candidates.add_commands,
    stop.add_commands,
    credentials.add_commands,
    protect.add_commands,
    rekey.add_commands,
    standalone.add_commands,
    nodes.add_commands,
    run_command.add_commands,
    embedded.cli.add_commands,
)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line, every command mounted."""
    parser = argparse.ArgumentParser(
        prog="standfast",
        description="A YARN application master with hot standbys for stateful PySpark streaming jobs.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version()}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add_commands in COMMAND_MODULES:
        add_commands(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out the command in ``argv`` (default: the process's own arguments); return its exit status."""
    _open_closed_outputs()
    arguments = build_parser().parse_args(argv)
    # It warns at each attempt to connect; the error that ends the command says all of it.
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except StandfastError as error:
        complain(f"standfast: {error}")
        return error.exit_status
    except EndedBySignal as error:
        complain(f"standfast: ended by {error.number.name}")
        return SIGNALLED + error.number
    except KeyboardInterrupt:
        complain("standfast: interrupted")
        return SIGNALLED + signal.SIGINT
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _reader_has_gone():
            return 0
        known = translated(error)
        if known is None:
            raise
        complain(f"standfast: {known}")
        return known.exit_status
    return status


def command_line() -> NoReturn:
    """Carry out the process's command as `main`, and end the process at once.

    The interpreter's own end frees each object and joins each library's threads. That takes 0.15 s of processor time:
    a second and more beside containers that start, as at the end of every submit.
    """
    status = main()
    for each in (sys.stdout, sys.stderr):
        # `main` has reported what could not be written.
        with suppress(OSError):
            each.flush()
    os._exit(status)


def _open_closed_outputs() -> None:
    """Discard what is written to an output that the caller has closed.

    Otherwise ``print`` would mix progress into results, or a connection would get the file descriptor of the output.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - until the end


def _reader_has_gone() -> bool:
    """Return whether the reader of the standard output (head, less) has ended, as it may.

    The output itself is polled: data that could not be written is not necessarily in a buffer any more.
    """
    try:
        output = sys.stdout.fileno()
    except OSError:
        return False  # it is not a file
    asked = select.poll()
    asked.register(output, 0)
    if not asked.poll(0):
        return False
    # Without this the interpreter would report it once more when it flushes standard output at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return True


if __name__ == "__main__":
    command_line()
