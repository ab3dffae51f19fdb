"""When a client of Kafka is replaced."""

from __future__ import annotations

import pytest

from standby.adapters.kafka.renewable_client import RenewableClient


class Clients:
    """Numbers the clients it makes, and has a clock."""

    def __init__(self) -> None:
        self.made = 0
        self.seconds = 0.0
        self.lasting = RenewableClient(self._make, lambda: self.seconds)

    def _make(self) -> int:
        self.made += 1
        return self.made

    def ask(self, *, fails: bool, after: float = 0.0) -> int:
        """Return which client was asked."""
        self.seconds += after
        asked = 0
        try:
            with self.lasting.use() as asked:
                if fails:
                    raise OSError("no leaders")
        except OSError:
            assert fails
        return asked


def test_one_that_fails_for_long_is_replaced_and_the_next_one_gets_its_time() -> None:
    clients = Clients()
    assert [clients.ask(fails=True, after=3) for _ in range(5)] == [1, 1, 1, 1, 2]
    assert [clients.ask(fails=True, after=3) for _ in range(4)] == [2, 2, 2, 3]


def test_an_answer_in_between_counts() -> None:
    clients = Clients()
    for _ in range(10):
        assert clients.ask(fails=True, after=5) == 1
        assert clients.ask(fails=False, after=1) == 1
    assert clients.made == 1


def test_what_is_raised_reaches_the_caller() -> None:
    with pytest.raises(ValueError, match="mine"), Clients().lasting.use():
        raise ValueError("mine")


def test_a_failure_of_the_former_client_is_not_the_new_one_s() -> None:
    clients = Clients()
    clients.ask(fails=True)
    slow = clients.lasting.use()
    slow.__enter__()
    clients.ask(fails=True, after=10)
    assert clients.made == 2
    assert slow.__exit__(OSError, OSError("late"), None) is not True
    assert clients.ask(fails=True, after=1) == 2
    assert clients.ask(fails=True, after=5) == 2, "its own time has begun with its own first failure"
    assert clients.made == 2
