"""The demo's tests have the suite's settings of Hypothesis."""

from __future__ import annotations

import tests.conftest  # noqa: F401
