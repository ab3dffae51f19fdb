"""Whether a job's changelog and inputs are still the topics that they were (rule `topic-id`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Final

from standby.errors import StandfastError, Transient
from standby.kernel.ports import Broker
from standby.replica.identity import RunTopics, TopicChanged, changed
from standby.replica.store.origin import Origin

#: For so long at most a question is shared that nobody has waited for yet: in less time no topic is deleted, created
#: again and filled (60 ms for the first two, measured with one idle broker).
_SHARED_SECONDS: Final = 0.02

#: Brings the answer to a question that was asked; raises `TopicChanged`, and `Transient` when there is none.
Answer = Callable[[], None]


def nothing_asked() -> Answer:
    """Ask nothing: of a task whose topics nobody looks at."""
    return lambda: None


class Identity:
    """Compares Kafka's ids of the topics with those that the run has recorded; from any thread.

    Of a topic that the run has not recorded yet, as one of an earlier release, the id that is found first is kept.
    Nothing is cached but what is expected: whoever asks gets an answer that is younger than the question.
    """

    def __init__(self, broker: Broker, run: Callable[[], RunTopics], now: Callable[[], float]) -> None:
        """``now`` is monotonic.

        ``run`` returns what is known at present: what the run has recorded may come to it later.
        """
        self._broker = broker
        self._run = run
        self._now = now
        self._lock = threading.Lock()
        # All below is guarded by it.
        self._first: dict[str, str] = {}
        self._asking: _Question | None = None

    def changelog_id(self) -> str:
        """Return the changelog's id; asks for it.

        Raises `TopicChanged` when it is another one than it was, and `Transient`, also when there is no such topic.
        """
        changelog = self._run().changelog
        found = self._asked((changelog,))()
        self._judge(found)
        return found[changelog]

    def check(self) -> None:
        """Return when changelog and inputs are the ones that they were; raises as `changelog_id`."""
        self.ask()()

    def ask(self) -> Answer:
        """Ask, and return at once; who calls what is returned waits for an answer that is younger than this call.

        Commits of one micro-batch share a question: all its rows were read before the first of them began, and the next
        one comes when all have ended, as a rule with the question answered.
        """
        now = self._now()
        with self._lock:
            question = self._asking
            if question is None or question.is_answered or now - question.asked_at > _SHARED_SECONDS:
                question = self._asking = _Question(self._asked(self._run().names), now)
        return lambda: self._judge(question.answer())

    def check_known(self, found: Origin | None) -> None:
        """Raise `TopicChanged` when local state tells that the changelog is another one, and the run does not say so.

        What the run has recorded has the last word: state of another changelog is of one that was given up.
        """
        run = self._run()
        with self._lock:
            present = self._first.get(run.changelog, "")
        if found is None or found.topic != run.changelog or run.of(run.changelog).id or not present:
            return
        if found.topic_id != present:
            raise TopicChanged(changed(run, run.changelog, found.topic_id, present))

    def _asked(self, topics: Collection[str]) -> Callable[[], Mapping[str, str]]:
        ask = self._broker.ask_topic_ids
        waiting = ask(topics)

        def answer() -> Mapping[str, str]:
            try:
                found = waiting()
            except Transient:
                # The broker that was asked may have died: another one answers.
                found = ask(topics)()
            if missing := [each for each in topics if each not in found]:
                raise Transient(f"{', '.join(missing)}: there is no such topic (any more)")
            return found

        return answer

    def _judge(self, found: Mapping[str, str]) -> None:
        run = self._run()
        with self._lock:
            for topic, topic_id in found.items():
                self._first.setdefault(topic, topic_id)
            first = dict(self._first)
        run.check({topic: each.id for topic, each in run.recorded.items() if each.id}, found)
        run.check(first, found)


class _Question:
    """One that several wait for; the first who waits brings the answer."""

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
