"""Named points in a leader's effects; see `standby.shared.probes`."""

from __future__ import annotations

from typing import Final

WRITING: Final = "leader: records about to be written"
WRITTEN: Final = "leader: records written, nobody told"
REQUESTED: Final = "leader: container requested"
ASSIGNING: Final = "leader: assignment about to be sent"
