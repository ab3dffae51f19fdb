"""The container's process with a fake kernel: ``python -m tests.fakes.container``."""

from __future__ import annotations

import os
from collections.abc import Callable

from standby.cluster import ClusterConfig
from standby.control import loop
from standby.kernel.environment import Environment
from standby.process.container import Kernel, main
from standby.process.witness import fork_witness
from tests.fakes.replicas import FakeReplicas
from tests.patience import PATIENCE_SECONDS


def make_kernel(cluster: ClusterConfig, environment: Environment, on_change: Callable[[], None]) -> Kernel:
    """Return a kernel whose replicas are at once what they are wanted to be, on empty disks."""
    return Kernel(FakeReplicas(on_change), lambda: (), lambda _: None)


if __name__ == "__main__":
    # The leader is a test, which may stand still for longer than a container waits: its last reports would be lost.
    loop._FINISH_SECONDS = PATIENCE_SECONDS  # type: ignore[misc]
    main(make_kernel, fork_witness(os.environ))
