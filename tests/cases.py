"""Naming the case of a table that fails where no assertion of the test's own can."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def case(*what: object) -> Iterator[None]:
    """Name ``what`` in the report of whatever fails within, such as a `pytest.raises` in which nothing is raised."""
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:
        raise AssertionError(f"case: {', '.join(map(repr, what))}") from error
