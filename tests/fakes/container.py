"""The container's process with a fake kernel: ``python -m tests.fakes.container``."""

from __future__ import annotations

import os
from collections.abc import Callable

from standby.cluster import ClusterConfig
from standby.kernel.environment import Environment
from standby.process.container import Kernel, main
from standby.process.witness import fork_witness
from tests.fakes.replicas import FakeReplicas


def make_kernel(cluster: ClusterConfig, environment: Environment, on_change: Callable[[], None]) -> Kernel:
    """Return a kernel whose replicas are at once what they are wanted to be, on empty disks."""
    return Kernel(FakeReplicas(on_change), lambda: (), lambda _: None)


if __name__ == "__main__":
    main(make_kernel, fork_witness(os.environ))
