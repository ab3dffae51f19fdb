"""What the command line refuses before it asks anybody."""

from __future__ import annotations

import pytest

from appmaster.cli.main import main


@pytest.mark.parametrize("name", ["..", ".", "a/b", ""])
def test_what_no_cluster_can_be_called_is_refused_by_name(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["status", "a"], ["drain", "host"]):
        with pytest.raises(SystemExit) as caught:
            main([*command, "--cluster", name])
        assert caught.value.code == 2
        assert f"{name!r} is no name of a cluster" in capsys.readouterr().err
