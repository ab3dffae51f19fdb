"""What all jobs of a container have in common."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from standby.config import JobConfig
from standby.kernel.codes import LoadCode, load_nothing
from standby.kernel.marks import Marks
from standby.kernel.ports import Connect, OpenDatabase, Step
from standby.kernel.probes import Probe, no_probe
from standby.kernel.restore.counters import RestoreCounters
from standby.kernel.restore.fetch import Peers
from standby.ports import MakeFeed, RecordReader
from standby.shared.clock import REAL, Clock


@dataclass(frozen=True, slots=True)
class Environment:
    """What the kernel is given: where it is, and its ways to everything outside."""

    cluster: str
    host: str
    records: RecordReader
    make_feed: MakeFeed
    connect: Connect
    open_database: OpenDatabase
    find_step: Callable[[JobConfig], Step]
    """`standby.feed.functions.step_of`, as a rule."""
    clock: Clock = REAL
    probe: Probe = no_probe
    load_code: LoadCode = load_nothing
    """Makes the modules of a definition importable that names its code; it may block."""
    restores: RestoreCounters = field(default_factory=RestoreCounters)
    """Counts where states came from."""
    peers: Peers | None = None
    """Whom to fetch state from; None: from nobody."""
    marks: Marks = field(default_factory=Marks)
    """Told what of the jobs' code runs."""
    opening: threading.Lock = field(default_factory=threading.Lock)
    """Held while a database is opened: who looks for strays must not touch its lock meanwhile."""
