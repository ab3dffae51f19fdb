"""Names the case of a table that fails, if no assertion of the test can name it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def case(*what: object) -> Iterator[None]:
    """Name ``what`` in the report of any failure in the block, such as a `pytest.raises` in which nothing is raised."""
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:
        raise AssertionError(f"case: {', '.join(map(repr, what))}") from error
