"""The output of commands: tables for people, one JSON document for programs, progress on standard error."""

from __future__ import annotations

import argparse
import errno
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from rich.console import Console
from rich.table import Table


def complain(text: str) -> None:
    """Print a line on standard error, ignoring errors: a command does not fail because the reader has ended."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def printed_as_json(arguments: argparse.Namespace, document: Any) -> bool:
    """Print a document on standard output if the command was given ``--json``; return whether it was."""
    if arguments.json:
        print(json.dumps(document, indent=2))
    return bool(arguments.json)


def local_time(at_ms: int) -> str:
    """Return a time, in Unix milliseconds, as people read it here."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms // 1000))


def attributes_in_words(attributes: Mapping[str, str]) -> str | None:
    """Return what a process of a pool offers, for people; None: nothing."""
    return " ".join(f"{key}={value}" for key, value in sorted(attributes.items())) or None


class _Console(Console):
    """A console that leaves a broken pipe to the command's end: rich itself would exit with status 1."""

    def on_broken_pipe(self) -> None:
        """Raise the error."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table on standard output, as wide as its content if that is not a terminal."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for each in headings:
        table.add_column(each, overflow="fold")
    for row in rows:
        table.add_row(*("-" if each is None else str(each) for each in row))
    is_terminal = sys.stdout.isatty()
    _Console(file=sys.stdout, width=None if is_terminal else 220, highlight=False, markup=False).print(table)


class Progress:
    """Lines on standard error, without immediate repetition, each preceded by the time since the start."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        self._start = time.monotonic()
        self._last = ""
        self._is_quiet = is_quiet

    def say(self, text: str) -> None:
        """Print ``text`` unless it equals the last one."""
        if text != self._last and not self._is_quiet:
            complain(f"{time.monotonic() - self._start:6.1f} s  {text}")
        self._last = text

    def warn(self, text: str) -> None:
        """Print a warning, whether or not the command is to be quiet."""
        complain(f"warning: {text}")

    @property
    def seconds(self) -> float:
        """Return the time since the start."""
        return time.monotonic() - self._start
