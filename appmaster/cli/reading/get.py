"""``standfast get``: look a key up in a job's state.

The value is that of the last commit, read from the task's active, or with --standby from a copy whose age is bounded
and shown. The answer of a former active that does not know of its replacement is rejected: its epoch must be the one
that the leader named when it was asked for the active.

Which task has the key depends on how the input's producers choose partitions. Give --partition or --partitioner if you
know; otherwise all tasks are asked at the same time.

Exit status: 0 found; 1 there is no such key, or no answer in time; 2 no such job, store or partition; 3 a server cannot
be used.
"""

from __future__ import annotations

import argparse
import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from appmaster.adapters.credentials.keyring import require
from appmaster.adapters.lookups import StateClient
from appmaster.api.search import Search, SearchAnswer, WantedKey
from appmaster.cli.shared.cluster import add_job_command, open_client, record_of
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.output import complain, printed_as_json
from appmaster.cli.shared.parsers import add_timeout
from appmaster.cli.shared.waiting import PollResult, until
from appmaster.topics.partitioners import PARTITIONERS
from standby.config import parse
from standby.errors import BadConfiguration, StandfastError, Unavailable
from standby.shared.model import Role
from standby.shared.peers import PeerAddress
from standby.state.expiring import data_key, split_value
from standby.state.serdes import INT, TEXT, Key, tuple_of

KEY_FORMATS: Final = ("text", "hex", "json")


def _no_number(name: str) -> None:
    raise ValueError(f"{name}, which Python writes, is not JSON")


VALUE_FORMATS: Final[Mapping[str, Callable[[bytes], Any]]] = {
    "text": bytes.decode,
    "hex": bytes.hex,
    "json": lambda value: json.loads(value, parse_constant=_no_number),
    "int": INT.load,
    "base64": lambda value: base64.b64encode(value).decode(),
}


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount ``get`` on the command line."""
    parser = add_job_command(subparsers, "get", _get, "look a key up in a job's state", __doc__)
    parser.add_argument("store", metavar="STORE", help="the store's name, one of task.stores")
    parser.add_argument("key", metavar="KEY", help="the key, in the form that --key-format says")
    parser.add_argument(
        "--key-format",
        choices=KEY_FORMATS,
        default="text",
        help="text (default), hex, or json for the ordered keys of standby.state: 5, '\"a\"', '[\"a\", 5]'",
    )
    parser.add_argument(
        "--value-format", choices=tuple(VALUE_FORMATS), default="text", help="(default: text)"
    )
    parser.add_argument(
        "--expiring", action="store_true", help="the store is used through standby.state.Expiring"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--partition", type=int, metavar="N", help="only the task of this input partition")
    which.add_argument(
        "--partitioner",
        choices=tuple(PARTITIONERS),
        help="only the task that this rule gives the key: murmur2 (Java clients) or crc32 (librdkafka's default)",
    )
    parser.add_argument("--standby", action="store_true", help="ask a standby instead of the active")
    parser.add_argument(
        "--max-lag-ms", type=int, metavar="N", help="with --standby: one that is at most so far behind"
    )
    add_timeout(parser, 10.0, "how long to try")


def _get(arguments: argparse.Namespace) -> int:
    key = key_of(arguments.key, arguments.key_format)
    if arguments.max_lag_ms is not None and not arguments.standby:
        raise BadConfiguration("--max-lag-ms needs --standby: an active is never behind")
    with open_client(arguments) as client:
        definition = record_of(arguments.job, client).definition
        stores = parse(definition.config).stores
        if arguments.store not in stores:
            raise BadConfiguration(
                f"{arguments.job} has no store {arguments.store}; it has {', '.join(stores)}"
            )
        partition = arguments.partition
        if arguments.partitioner:
            partition = PARTITIONERS[arguments.partitioner](key, definition.tasks)
        if partition is not None and not 0 <= partition < definition.tasks:
            raise BadConfiguration(
                f"{arguments.job} has no task {partition}; it has 0 to {definition.tasks - 1}"
            )
        wanted = WantedKey(
            arguments.job,
            arguments.store,
            data_key(key) if arguments.expiring else key,
            frozenset(range(definition.tasks) if partition is None else (partition,)),
            Role.STANDBY if arguments.standby else Role.ACTIVE,
            arguments.max_lag_ms,
        )
        state = StateClient(require(arguments.cluster or arguments.job).keys)
        search = Search(wanted, client.status, lambda: _addresses(client.info()), state.look_up)
        find(search, Deadline(arguments.timeout))
    return _show(search.answers(), arguments)


def _addresses(info: Mapping[str, Any]) -> list[PeerAddress]:
    """Return the addresses of containers from the cluster's info, so that no session with ZooKeeper is needed."""
    return [PeerAddress(each["container"], each["host"], each["peer_port"]) for each in info["containers"]]


def find(search: Search, deadline: Deadline) -> None:
    """Return when the search has an answer; raises `StandfastError` when the time is over."""

    def look() -> PollResult[Unavailable | None]:
        try:
            return PollResult(search.ask(), None)
        except Unavailable as error:
            # A leader that has just gone is replaced in a moment.
            return PollResult(False, error)

    seen = until(deadline, look)
    if not seen.is_done:
        raise seen.what or StandfastError(search.complaint())


def key_of(text: str, form: str) -> bytes:
    """Return the key that the user means; raises `BadConfiguration` if ``text`` does not have the format."""
    try:
        if form == "hex":
            return bytes.fromhex(text)
        if form == "json":
            value = _as_tuples(json.loads(text))
            return _serde(value).dump(value)
        return text.encode()
    except (ValueError, OverflowError) as error:
        raise BadConfiguration(f"{text!r} is not a key in the form {form}: {error}") from error


def _as_tuples(value: Any) -> Any:
    """Return a JSON value with lists converted to tuples, as composite keys are."""
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def _serde(value: Any) -> Key[Any]:
    """Return the serde of `standby.state` for a key."""
    if isinstance(value, tuple) and value:
        return tuple_of(*map(_serde, value))
    if isinstance(value, str):
        return TEXT
    if isinstance(value, int) and not isinstance(value, bool):
        return INT
    raise ValueError("a key is a text, a whole number, or a list of those")


def _show(answers: Sequence[SearchAnswer], arguments: argparse.Namespace) -> int:
    """Print the answers; return the exit status."""
    shown = [_shown(each, arguments) for each in answers]
    found = [each for each in shown if each["found"]]
    if printed_as_json(
        arguments, {"job": arguments.job, "store": arguments.store, "found": bool(found), "answers": shown}
    ):
        return 0 if found else 1
    for each in shown:
        expires = f", expires at {each['expires_ms']}" if "expires_ms" in each else ""
        complain(
            f"task {each['partition']}: {'found' if each['found'] else 'no such key'} in the {each['role']} copy "
            f"{each['copy']} in {each['container']}, epoch {each['epoch']}, changelog offset {each['applied']}, "
            f"lag {each['lag_ms']} ms{expires}"
        )
    if len(found) > 1:
        tasks = ", ".join(str(each["partition"]) for each in found)
        raise StandfastError(
            f"tasks {tasks} have this key; choose one with --partition, or see all with --json"
        )
    for each in found:
        print(json.dumps(each["value"]) if arguments.value_format == "json" else each["value"])
    return 0 if found else 1


def _shown(answer: SearchAnswer, arguments: argparse.Namespace) -> SearchAnswer:
    """Return an answer with its value in the requested format."""
    if not answer["found"]:
        return answer
    value, more = base64.b64decode(answer["value"]), {}
    try:
        if arguments.expiring:
            more["expires_ms"], value = split_value(value)
        return {**answer, **more, "value": VALUE_FORMATS[arguments.value_format](value)}
    except ValueError as error:
        raise BadConfiguration(
            f"the value is not of the form {arguments.value_format} ({error}); try --value-format hex"
        ) from error
