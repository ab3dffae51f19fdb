"""The commands ``standfast local …``, which run the embedded cluster."""

from __future__ import annotations

import argparse


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount ``local`` and its commands on the command line."""
    local = subparsers.add_parser("local", help="run ZooKeeper, Kafka and YARN on this machine")
    local.add_subparsers(metavar="COMMAND", required=True)
