"""How each command is added to the command line, with the same form of help."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from standby.shared import naming

#: The object that commands are added to.
Subparsers = argparse._SubParsersAction  # noqa: SLF001 - argparse has no public name for it


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
    parser.add_argument("--timeout", type=float, default=seconds, metavar="SECONDS", help=help_text)


def cluster_name(text: str) -> str:
    """Return ``text``, the value of an option; argparse reports a name that no cluster can have."""
    if not naming.NAME.match(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a cluster name: it can be {naming.NAME_WORDS}")
    return text
