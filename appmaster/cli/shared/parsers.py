"""How every command of the command line is mounted: the same help, the same way to be run."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from standby.shared import naming

#: Mounts commands on these.
Subparsers = argparse._SubParsersAction  # noqa: SLF001 - argparse has no public name for it


def add_command(
    subparsers: Subparsers[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
    doc: str | None,
    aliases: Sequence[str] = (),
) -> argparse.ArgumentParser:
    """Return the parser of a new command; all of its module's ``doc`` but the first paragraph ends its help.

    ``aliases`` are other names under which it is known.
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


def cluster_name(text: str) -> str:
    """Return ``text``, the value of an option; argparse tells of one that no cluster can have."""
    if not naming.NAME.match(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a cluster name: it can be {naming.NAME_WORDS}")
    return text
