"""How each command is added to the command line, with the same form of help."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from typing import Final

from standby.shared import naming

#: The object that commands are added to.
Subparsers = argparse._SubParsersAction  # noqa: SLF001 - argparse has no public name for it

#: Most seconds of a time-out: a year.
_MOST_SECONDS: Final = 31_536_000


def add_command(
    subparsers: Subparsers[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
    doc: str | None,
    aliases: Sequence[str] = (),
) -> argparse.ArgumentParser:
    """Return the parser of a new command; its help ends with its module's ``doc`` except the first paragraph.

    ``aliases`` are further names of the command.
    """
    parser = subparsers.add_parser(
        name,
        aliases=aliases,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=(doc or "").partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def add_timeout(parser: argparse.ArgumentParser, seconds: float, text: str) -> None:
    """Add ``--timeout SECONDS``, of which ``text`` says what it limits."""
    help_text = f"{text} (default: {seconds:g})"
    parser.add_argument("--timeout", type=seconds_of, default=seconds, metavar="SECONDS", help=help_text)


def count_of(text: str) -> int:
    """Return ``text``, a number of things, of which there is at least one; argparse reports any other."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def seconds_of(text: str) -> float:
    """Return ``text``, a time-out in seconds; argparse reports one for which nothing can wait."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    # Neither nan nor a number of which a deadline in gRPC, or the wait of a thread, would overflow.
    if not 0 <= found <= _MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to {_MOST_SECONDS}")
    return found


def cluster_name(text: str) -> str:
    """Return ``text``, the value of an option; argparse reports a name that no cluster can have."""
    if not naming.NAME.match(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a cluster name: it can be {naming.NAME_WORDS}")
    return text
