"""A candidate's part in keeping the code of jobs: one thread decides by the rules, another transfers bundles."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final

from appmaster.blame import describe_error, is_of_job
from appmaster.code import rules, steps
from appmaster.code.ports import CodeDirectory, CodeDistributor
from appmaster.code.rules import CodeTrouble, CodeView
from appmaster.code.store import BundleStore
from standby.errors import Fenced, Transient, Unavailable
from standby.shared.clock import Clock
from standby.shared.peers import BundleSource
from standby.threads.worker import Worker, fatal

_log: Final = logging.getLogger(__name__)

#: How long the election waits for a read of ZooKeeper that is certainly up to date, seconds.
_FRESH_SECONDS: Final = 2.0

#: Longest time between attempts to fetch missing code; a candidate also tries at each change.
SYNC_SECONDS: Final = 30.0

#: How often deadlines shorter than the sync time are checked, seconds.
_TICK_SECONDS: Final = 0.25


@dataclass
class CodeService:
    """Fetches what this candidate lacks, announces what it has, and says whether it may lead. Every candidate runs one.

    Both callbacks run on the service's thread.
    """

    me: BundleSource
    store: BundleStore
    directory: CodeDirectory
    distributor: CodeDistributor
    clock: Clock
    sync_seconds: float = field(kw_only=True)
    delete_delay_ms: int = field(kw_only=True)
    fenced: Callable[[str], None] = field(kw_only=True)
    """Called when another candidate leads."""
    troubled: Callable[[], None] = field(default=lambda: None, kw_only=True)
    """Called when `quarantined` or `waiting` have changed."""

    def __post_init__(self) -> None:
        self._troubles: tuple[Mapping[str, CodeTrouble], ...] = ()
        self._epoch = 0
        self._worker = Worker("code", self._turn, failed=fatal)
        self._carrier = ThreadPoolExecutor(max_workers=1, thread_name_prefix="carrier")
        self._tick_seconds = min(_TICK_SECONDS, self.sync_seconds)
        self._parts_seen_ms: int | None = None
        #: Replaced by the service's thread, never modified: any thread may read it.
        self.view = CodeView(
            self.me.candidate,
            int(self.sync_seconds * 1000),
            self.delete_delay_ms,
            self.clock.monotonic_ms(),
            held=self.store.load(),
        )

    # ---- for the election, and for the leader ----

    def may_lead(self) -> tuple[str, ...]:
        """Return the bundles without which this candidate may not lead; empty: it may.

        Read with a sync, so that a job activated before this call is counted. Any thread; it blocks for as long as
        ZooKeeper takes to answer.
        """
        try:
            directory = self.directory.fresh(_FRESH_SECONDS)
        except Transient as error:
            _log.warning("not standing for leader: %s", error)
            return (rules.UNKNOWN,)
        lacked = rules.missing(rules.learned(self.view, directory, self.clock.monotonic_ms()))
        if lacked:
            _log.info("not standing for leader: code of active jobs is missing: %s", ", ".join(lacked))
        return lacked

    def quarantined(self) -> Mapping[str, CodeTrouble]:
        """Return the active jobs whose code is unavailable, and why."""
        return rules.quarantined_jobs(self.view)

    def waiting(self) -> Mapping[str, CodeTrouble]:
        """Return the jobs whose present revision is not active yet, and what it waits for."""
        return rules.code_troubles(self.view)

    def lead(self, epoch: int) -> None:
        """Activate jobs from now on, under ``epoch``; 0: stop. Returns at once."""
        self._worker.put(lambda: self._led(epoch))

    # ---- for uploads ----

    def received(self, bundle: str) -> None:
        """Note a bundle that was uploaded into the store. Any thread."""
        self._worker.put(lambda: self._came(bundle, rules.uploaded))

    # ---- lifecycle ----

    def start(self) -> None:
        """Start."""
        self.directory.start(lambda: self._worker.put(self._look))
        self._worker.put(self._look)
        self._worker.start()

    def close(self) -> None:
        """Stop; returns when both threads have ended."""
        self.distributor.interrupt()
        self._worker.close()
        self._worker.join()
        self._carrier.shutdown(wait=True, cancel_futures=True)
        self.directory.close()

    # ---- the service's thread ----

    def _turn(self) -> None:
        self._worker.wait(self.clock.pace(self._tick_seconds))
        self._worker.catch_up()
        if self._worker.is_closed:
            return
        self.view = rules.ticked(self.view, self.clock.monotonic_ms())
        for step in steps.plan(self.view):
            try:
                self._carry_out(step)
            except Fenced as error:
                self._led(0)
                self.fenced(str(error))
            except Exception as error:
                if not is_of_job(error):
                    raise
                # A later turn plans it again.
                _log.warning("%s: %s", step, describe_error(error))
                if isinstance(step, (steps.Condemn, steps.Remove, steps.Bury)):
                    self._failed(step.bundle, describe_error(error))
        self._remove_parts()
        troubles = self.quarantined(), self.waiting()
        if troubles != self._troubles:
            self._troubles = troubles
            self.troubled()

    def _remove_parts(self) -> None:
        now_ms = self.view.now_ms
        if self._parts_seen_ms is not None and now_ms - self._parts_seen_ms < self.view.sync_ms:
            return
        self._parts_seen_ms = now_ms
        try:
            # What is missing is fetched on from where it stopped, however long no candidate gives it.
            self.store.remove_abandoned(
                now_ms, self.view.fetching | (rules.wanted_bundles(self.view) - self.view.held)
            )
        except Unavailable as error:
            _log.warning("parts of bundles: %s", error)

    def _look(self) -> None:
        directory = self.directory.read()
        if directory is not None:
            self.view = rules.learned(self.view, directory, self.clock.monotonic_ms())

    def _led(self, epoch: int) -> None:
        self._epoch = epoch
        self.view = rules.led(replace(self.view, now_ms=self.clock.monotonic_ms()), leads=epoch > 0)

    def _came(self, bundle: str, fold: Callable[[CodeView, str, int], CodeView]) -> None:
        if self.store.has(bundle):
            self.view = fold(self.view, bundle, self.clock.monotonic_ms())
        else:
            # This thread also removes deleted bundles: it removed this one after the uploader had checked.
            self._failed(bundle, "it was removed just after it had arrived")

    def _published(self, bundle: str) -> None:
        self.view = rules.published(self.view, bundle, self.clock.monotonic_ms())

    def _failed(self, bundle: str, why: str) -> None:
        self.view = rules.failed(self.view, bundle, why, self.clock.monotonic_ms())

    def _carry_out(self, step: steps.CodeStep) -> None:
        if isinstance(step, steps.Fetch):
            self.view = steps.began(self.view, step)
            self._carrier.submit(self._fetch, step)
        elif isinstance(step, steps.Publish):
            self.view = steps.began(self.view, step)
            self._carrier.submit(self._publish, step.bundle)
        elif isinstance(step, steps.Announce):
            self.directory.announce(step.bundle, self.me)
        elif isinstance(step, steps.Revive):
            self.directory.revive(step.bundle)
        elif isinstance(step, steps.Condemn):
            self.directory.condemn(step.bundle, self._epoch)
        elif isinstance(step, steps.Remove):
            # Removed from the directory first, so that no candidate is sent here for a bundle that is gone.
            self.directory.withdraw(step.bundle, self.me)
            self.store.remove(step.bundle)
            self.view = rules.dropped(self.view, step.bundle)
            _log.info("bundle %s was deleted and not needed since; removed", step.bundle)
        elif isinstance(step, steps.Bury):
            self.distributor.forget(step.bundle, lambda: self.directory.bury(step.bundle, step.version))
        elif isinstance(step, steps.Activate):
            self.directory.activate(step.job, step.run, step.revision, self._epoch)
            _log.info("revision %d of %s is active: %s", step.revision, step.job, step.said)

    # ---- the carrier's thread ----

    def _fetch(self, step: steps.Fetch) -> None:
        try:
            if not self.store.has(step.bundle):
                part = self.store.fetched(step.bundle)
                self.distributor.fetch(step.bundle, step.sources, part)
                self.store.complete(step.bundle, part)
        except Exception as error:  # noqa: BLE001 - without an outcome the job would wait for this fetch for ever
            why = describe_error(error)
            _log.info("bundle %s: %s", step.bundle, why)
            self._worker.put(lambda: self._failed(step.bundle, why))
        else:
            _log.info("bundle %s has arrived", step.bundle)
            self._worker.put(lambda: self._came(step.bundle, rules.got))

    def _publish(self, bundle: str) -> None:
        try:
            self.distributor.publish(bundle, self.store.path(bundle))
        except Exception as error:  # noqa: BLE001 - as with a fetch
            why = describe_error(error)
            _log.warning("bundle %s could not be published: %s", bundle, why)
            self._worker.put(lambda: self._failed(bundle, why))
        else:
            self._worker.put(lambda: self._published(bundle))
