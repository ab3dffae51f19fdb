"""A candidate's part in keeping the code of jobs: one thread decides by the rules, another one carries bytes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

from appmaster.blame import is_of_job, told
from appmaster.code import rules, steps
from appmaster.code.ports import CodeDirectory, CodeDistributor
from appmaster.code.rules import CodeView, Trouble
from appmaster.code.store import BundleStore
from standby.errors import Fenced, Transient
from standby.shared.clock import Clock
from standby.shared.peers import BundleSource
from standby.threads.inbox import Inbox

_log: Final = logging.getLogger(__name__)

#: How long the election waits for a look at ZooKeeper that is certainly of now, seconds.
_FRESH_SECONDS: Final = 2.0

#: How often at least a candidate tries again to fetch code that it lacks; it also tries at each change.
SYNC_SECONDS: Final = 30.0

#: Deadlines shorter than the sync time are looked at so often, seconds.
_TICK_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class _Changed:
    """The directory may have something new."""


@dataclass(frozen=True, slots=True)
class _Got:
    bundle: str


@dataclass(frozen=True, slots=True)
class _Uploaded:
    bundle: str


@dataclass(frozen=True, slots=True)
class _Published:
    bundle: str


@dataclass(frozen=True, slots=True)
class _Failed:
    bundle: str
    why: str


@dataclass(frozen=True, slots=True)
class _Led:
    epoch: int
    """0: leads no longer."""


@dataclass(frozen=True, slots=True)
class _Closed:
    pass


_Event = _Changed | _Got | _Uploaded | _Published | _Failed | _Led | _Closed


class CodeService:
    """Fetches what this candidate lacks, tells what it has, and says whether it may lead. Every candidate runs one.

    Both are called on the service's thread: ``fenced`` when another leads, ``troubled`` when `quarantined` or
    `waiting` have changed.
    """

    def __init__(
        self,
        me: BundleSource,
        store: BundleStore,
        directory: CodeDirectory,
        distributor: CodeDistributor,
        clock: Clock,
        *,
        sync_seconds: float,
        delete_delay_ms: int,
        fenced: Callable[[str], None],
        troubled: Callable[[], None] = lambda: None,
    ) -> None:
        self._me = me
        self._store = store
        self._directory = directory
        self._distributor = distributor
        self._clock = clock
        self._fenced = fenced
        self._troubled = troubled
        self._troubles: tuple[Mapping[str, Trouble], ...] = ()
        self._epoch = 0
        self._inbox: Inbox[_Event] = Inbox()
        self._carrier = ThreadPoolExecutor(max_workers=1, thread_name_prefix="carrier")
        self._tick_seconds = min(_TICK_SECONDS, sync_seconds)
        self._thread = threading.Thread(target=self._run, name="code", daemon=True)
        #: Replaced by the service's thread, never changed: any thread may read it.
        self.view = CodeView(
            me.candidate, int(sync_seconds * 1000), delete_delay_ms, clock.monotonic_ms(), held=store.load()
        )

    # ---- for the election, and for whoever leads ----

    def may_lead(self) -> tuple[str, ...]:
        """Return the bundles without which this candidate may not lead; empty: it may.

        Read with a sync: a job that was activated before this call is counted. Any thread; it blocks for as long
        as ZooKeeper takes to answer.
        """
        try:
            directory = self._directory.fresh(_FRESH_SECONDS)
        except Transient as error:
            _log.warning("not standing for leader: %s", error)
            return (rules.UNKNOWN,)
        lacked = rules.missing(rules.learned(self.view, directory, self._clock.monotonic_ms()))
        if lacked:
            _log.info("not standing for leader: the code of active jobs is lacking: %s", ", ".join(lacked))
        return lacked

    def quarantined(self) -> Mapping[str, Trouble]:
        """Return the active jobs whose code cannot be had, and why."""
        return rules.set_aside(self.view)

    def waiting(self) -> Mapping[str, Trouble]:
        """Return the jobs whose present revision is not active yet, and what it waits for."""
        return rules.held_up(self.view)

    def lead(self, epoch: int) -> None:
        """Activate jobs from now on, under ``epoch``; 0: no longer. Returns at once."""
        self._inbox.post(_Led(epoch))

    # ---- for uploads ----

    def received(self, bundle: str) -> None:
        """Take up a bundle that somebody has brought into the store. Any thread."""
        self._inbox.post(_Uploaded(bundle))

    # ---- its life ----

    def start(self) -> None:
        """Begin."""
        self._directory.start(lambda: self._inbox.post(_Changed()))
        self._inbox.post(_Changed())
        self._thread.start()

    def close(self) -> None:
        """End; returns when both threads have."""
        self._distributor.interrupt()
        self._inbox.post(_Closed())
        self._thread.join()
        self._carrier.shutdown(wait=True, cancel_futures=True)
        self._directory.close()

    def _run(self) -> None:
        while True:
            events = self._inbox.drain(self._clock.pace(self._tick_seconds))
            if any(isinstance(each, _Closed) for each in events):
                return
            view = self.view
            for each in events:
                view = self._fold(view, each)
            self.view = rules.ticked(view, self._clock.monotonic_ms())
            for step in steps.plan(self.view):
                try:
                    self._carry_out(step)
                except Fenced as error:
                    self._epoch = 0
                    self.view = rules.led(self.view, leads=False)
                    self._fenced(str(error))
                except Exception as error:
                    if not is_of_job(error):
                        raise
                    # A later turn plans it again.
                    _log.warning("%s: %s", step, told(error))
                    if isinstance(step, (steps.Condemn, steps.Remove, steps.Bury)):
                        self.view = rules.failed(
                            self.view, step.bundle, told(error), self._clock.monotonic_ms()
                        )
            troubles = self.quarantined(), self.waiting()
            if troubles != self._troubles:
                self._troubles = troubles
                self._troubled()

    def _fold(self, view: CodeView, event: _Event) -> CodeView:
        now = self._clock.monotonic_ms()
        if isinstance(event, _Changed):
            directory = self._directory.read()
            return view if directory is None else rules.learned(view, directory, now)
        if isinstance(event, (_Got, _Uploaded)) and not self._store.has(event.bundle):
            # Deleted bundles are removed on this thread: it was, after whoever brought it had looked.
            return rules.failed(view, event.bundle, "it was removed when it had just come", now)
        if isinstance(event, _Got):
            return rules.got(view, event.bundle, now)
        if isinstance(event, _Uploaded):
            return rules.uploaded(view, event.bundle, now)
        if isinstance(event, _Published):
            return rules.published(view, event.bundle, now)
        if isinstance(event, _Failed):
            return rules.failed(view, event.bundle, event.why, now)
        if isinstance(event, _Led):
            self._epoch = event.epoch
            return rules.led(replace(view, now_ms=now), leads=event.epoch > 0)
        return view

    def _carry_out(self, step: steps.Step) -> None:
        if isinstance(step, steps.Fetch):
            self.view = steps.began(self.view, step)
            self._carrier.submit(self._fetch, step)
        elif isinstance(step, steps.Publish):
            self.view = steps.began(self.view, step)
            self._carrier.submit(self._publish, step.bundle)
        elif isinstance(step, steps.Announce):
            self._directory.announce(step.bundle, self._me)
        elif isinstance(step, steps.Revive):
            self._directory.revive(step.bundle)
        elif isinstance(step, steps.Condemn):
            self._directory.condemn(step.bundle, self._epoch)
        elif isinstance(step, steps.Remove):
            # Out of the directory first: nobody is to be sent here for what is not here any more.
            self._directory.withdraw(step.bundle, self._me)
            self._store.remove(step.bundle)
            self.view = rules.dropped(self.view, step.bundle)
            _log.info("bundle %s was deleted, and nobody asked for it since; removed", step.bundle)
        elif isinstance(step, steps.Bury):
            # Forgotten first: who uploads it again later publishes it again, in that order.
            self._distributor.forget(step.bundle)
            self._directory.bury(step.bundle, step.version)
        elif isinstance(step, steps.Activate):
            self._directory.activate(step.job, step.revision, self._epoch)
            _log.info("revision %d of %s is active: %s", step.revision, step.job, step.said)

    # ---- the carrier's thread ----

    def _fetch(self, step: steps.Fetch) -> None:
        try:
            if not self._store.has(step.bundle):
                part = self._store.fetched(step.bundle)
                self._distributor.fetch(step.bundle, step.sources, part)
                self._store.complete(step.bundle, part)
        except Exception as error:  # noqa: BLE001 - of a fetch that is never told of the job would wait for ever
            _log.info("bundle %s: %s", step.bundle, told(error))
            self._inbox.post(_Failed(step.bundle, told(error)))
            return
        _log.info("bundle %s is here", step.bundle)
        self._inbox.post(_Got(step.bundle))

    def _publish(self, bundle: str) -> None:
        try:
            self._distributor.publish(bundle, self._store.path(bundle))
        except Exception as error:  # noqa: BLE001 - as with a fetch
            _log.warning("bundle %s could not be published: %s", bundle, told(error))
            self._inbox.post(_Failed(bundle, told(error)))
            return
        self._inbox.post(_Published(bundle))
