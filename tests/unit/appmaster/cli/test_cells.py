"""Where the masters of cells come to: on different hosts, if YARN lets them."""

from __future__ import annotations

import itertools

from appmaster.cli.clusters.cells import apart


class Applications:
    """Applications that come to hosts as a test says, one after the other."""

    def __init__(self, *hosts: str) -> None:
        self.hosts = dict(zip(map(str, itertools.count(1)), hosts, strict=False))
        self.started = 1
        self.ended: list[str] = []

    def again(self) -> str:
        self.started += 1
        return str(self.started)

    def apart(self, *taken: str) -> str:
        return apart("1", taken, self.again, self.hosts.__getitem__, self.ended.append)


def test_master_on_a_host_of_its_own_stays_there() -> None:
    yarn = Applications("h2", "h3")
    assert yarn.apart("h1") == "h2"
    assert (yarn.started, yarn.ended) == (1, [])


def test_master_beside_another_is_ended_and_asked_for_again() -> None:
    yarn = Applications("h1", "h1", "h3")
    assert yarn.apart("h1") == "h3"
    assert (yarn.started, yarn.ended) == (3, ["1", "2"])


def test_full_cluster_is_not_asked_for_ever() -> None:
    yarn = Applications(*["h1"] * 20)
    assert yarn.apart("h1") == "h1"
    assert 8 < yarn.started < 20, "every third of a master on three hosts, all in a row"
    assert yarn.ended == [str(each) for each in range(1, yarn.started)]


def test_host_that_is_not_known_is_not_taken_for_another_s() -> None:
    yarn = Applications("")
    assert yarn.apart("h1", "") == ""
    assert yarn.ended == []
