"""Checks that a job's changelog and inputs are still the same topics (rule `topic-id`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Final

from standby.errors import StandfastError, Transient
from standby.kernel.ports import Broker
from standby.replica.identity import RunTopics

#: How long an unanswered request may be shared. No topic can be deleted, recreated and filled in less time (60 ms
#: for the first two steps, measured with one idle broker).
_SHARED_SECONDS: Final = 0.02

#: How long the first request waits for the brokers: one that is silent must not delay a commit until its transaction
#: times out. The second one may take longer, as on brokers with much to do.
_FIRST_SECONDS: Final = 2.0

#: Waits for the answer to a request. Raises `TopicChanged`, and `Transient` when there is no answer.
TopicAnswer = Callable[[], None]


def ask_nothing() -> TopicAnswer:
    """Send no request: for a task whose topics are not checked."""
    return lambda: None


class TopicIdCheck:
    """Compares the topic ids in Kafka with those that the run has recorded. Thread-safe.

    Every submit records the ids of the changelog and of all inputs. Nothing is cached: every answer is newer than its
    request.
    """

    def __init__(self, broker: Broker, run: Callable[[], RunTopics], now: Callable[[], float]) -> None:
        """``now`` is monotonic. ``run`` returns what is recorded now: an operator may accept another topic."""
        self._broker = broker
        self._run = run
        self._now = now
        self._lock = threading.Lock()
        # Guarded by it.
        self._asking: _Question | None = None

    def changelog_id(self) -> str:
        """Request and return the changelog's id.

        Raises `TopicChanged` when the id has changed, and `Transient`, also when the topic does not exist.
        """
        changelog = self._run().changelog
        found = self._asked((changelog,))()
        self._judge(found)
        return found[changelog]

    def check(self) -> None:
        """Return if changelog and inputs are unchanged; raises like `changelog_id`."""
        self.ask()()

    def ask(self) -> TopicAnswer:
        """Send a request and return at once; calling the result waits for an answer newer than this call.

        Commits of one micro-batch share a request: all its rows were read before the first commit began. The next
        micro-batch starts after all commits have ended, usually with the request answered.
        """
        now = self._now()
        with self._lock:
            question = self._asking
            if question is None or question.is_answered or now - question.asked_at > _SHARED_SECONDS:
                question = self._asking = _Question(self._asked(self._run().names), now)
        return lambda: self._judge(question.answer())

    def _asked(self, topics: Collection[str]) -> Callable[[], Mapping[str, str]]:
        ask = self._broker.ask_topic_ids
        waiting = ask(topics, _FIRST_SECONDS)

        def answer() -> Mapping[str, str]:
            try:
                found = waiting()
            except Transient:
                # The broker that was asked may have died, or its host: the client asks another one now.
                found = ask(topics)()
            if missing := [each for each in topics if each not in found]:
                raise Transient(f"{', '.join(missing)}: there is no such topic (or no longer)")
            return found

        return answer

    def _judge(self, found: Mapping[str, str]) -> None:
        self._run().check(found)


class _Question:
    """A request with several waiting threads; the first one to wait fetches the answer."""

    def __init__(self, answer: Callable[[], Mapping[str, str]], asked_at: float) -> None:
        """``asked_at`` is monotonic time."""
        self.asked_at: Final = asked_at
        self._bring: Final = answer
        self._lock = threading.Lock()
        self._found: Mapping[str, str] | None = None
        self._error: StandfastError | None = None
        self.is_answered = False

    def answer(self) -> Mapping[str, str]:
        with self._lock:
            if not self.is_answered:
                try:
                    self._found = self._bring()
                except StandfastError as error:
                    self._error = error
                finally:
                    self.is_answered = True
        if self._error is not None:
            raise self._error
        assert self._found is not None
        return self._found
