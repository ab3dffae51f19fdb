"""What all jobs of a container share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from standby.config import JobConfig
from standby.kernel.loaded_code import LoadCode, load_nothing
from standby.kernel.marks import Marks
from standby.kernel.ports import ConnectBroker, OpenDatabase, StepFunction
from standby.kernel.probes import Probe, no_probe
from standby.kernel.restore.counters import RestoreCounters
from standby.kernel.restore.fetch import Peers
from standby.ports import MakeFeed, RecordReader
from standby.shared.clock import REAL, Clock


@dataclass(frozen=True, slots=True)
class Environment:
    """The kernel's location and its access to everything external."""

    cluster: str
    host: str
    records: RecordReader
    make_feed: MakeFeed
    connect: ConnectBroker
    open_database: OpenDatabase
    find_step: Callable[[JobConfig], StepFunction]
    """Usually `standby.feed.functions.step_of`."""
    clock: Clock = REAL
    probe: Probe = no_probe
    load_code: LoadCode = load_nothing
    """Makes the modules of a definition importable; may block."""
    restores: RestoreCounters = field(default_factory=RestoreCounters)
    """Counts restores by source."""
    peers: Peers | None = None
    """Access to peers to fetch state from; None: state is never fetched."""
    marks: Marks = field(default_factory=Marks)
    """Records which code of the jobs is running."""
    state_dirs: tuple[str, ...] = ()
    """Where state is kept, whatever directories jobs name; empty: in those that each job names."""
    opening: threading.Lock = field(default_factory=threading.Lock)
    """Held while a database is opened: the search for strays must not touch its lock meanwhile."""
