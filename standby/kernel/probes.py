"""Named points in the kernel at which a test may observe, wait, or kill the process."""

from __future__ import annotations

from typing import Final

from standby.shared import probes

Probe = probes.Probe
no_probe = probes.no_probe

RECORD_READ: Final = "takeover: record read"
WRITER_INITIALISED: Final = "takeover: writer initialised"
OFFSETS_READ: Final = "takeover: offsets read"
DRAINED: Final = "takeover: drained"
CLAIMED: Final = "takeover: claimed"

STEPPED: Final = "batch: state step computed"
BEFORE_COMMIT: Final = "commit: records sent, transaction open"
AFTER_COMMIT: Final = "commit: transaction committed, store not written"
AFTER_STORE: Final = "commit: store written"
TASK_COMMITTED: Final = "batch: one task committed, perhaps not the last"
STORE_BATCH: Final = "store: batch made, about to be written"
REPLAYED: Final = "replay: changes written"
