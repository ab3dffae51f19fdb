"""How long tests wait for what has to come, and for what must not be waited for."""

from __future__ import annotations

#: Only a test that fails waits so long: far beyond what anything takes on a busy machine.
PATIENCE_SECONDS = 120.0

#: Longer than any test: what comes although this has not passed did not wait for it.
NEVER_SECONDS = 36_000.0
