"""Where files are kept, for users of every sort."""

from __future__ import annotations

from pathlib import Path

import pytest

from embedded.places import cache_directory, clusters_directory, home_directory
from standby.errors import BadConfiguration


@pytest.fixture
def without_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user id that has no entry in the user database, as in some containers."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 1 << 30)


@pytest.mark.usefixtures("without_home")
def test_without_a_home_the_variable_to_set_is_named() -> None:
    assert home_directory() is None
    with pytest.raises(BadConfiguration, match="set STANDFAST_CACHE to a directory"):
        cache_directory({})
    with pytest.raises(BadConfiguration, match="set STANDFAST_HOME to a directory"):
        clusters_directory({})
    assert cache_directory({"STANDFAST_CACHE": "/a b"}) == Path("/a b")
    assert clusters_directory({"XDG_STATE_HOME": "/c d"}) == Path("/c d/standfast/local")
