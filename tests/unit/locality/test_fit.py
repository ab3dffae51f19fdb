"""Which process of a pool fits a request, which of several is the best, and what is said where none does."""

from __future__ import annotations

import pytest

from locality.fit import Demand, PoolProcess, fits, level, rest, why_none
from standby.shared.model import NodeOffer

ANYTHING, SMALL, LARGE = NodeOffer(), NodeOffer(memory_mb=2_048), NodeOffer(memory_mb=8_192)
GPU = NodeOffer("gpu", 4_096, cores=2, tasks=4)


@pytest.mark.parametrize(
    ("demand", "fitting"),
    [
        (Demand("a job"), (ANYTHING, SMALL, LARGE)),
        (Demand(memory_mb=2_048, cores=9, tasks=9), (ANYTHING, SMALL, LARGE)),
        (Demand(memory_mb=2_049), (ANYTHING, LARGE)),
        (Demand(memory_mb=9_000), (ANYTHING,)),
        (Demand(group="gpu"), (GPU,)),
        (Demand(group="gpu", memory_mb=4_096, cores=2, tasks=4), (GPU,)),
        (Demand(group="gpu", memory_mb=4_097), ()),
        (Demand(group="gpu", cores=3), ()),
        (Demand(group="gpu", tasks=5), ()),
        (Demand(group="other"), ()),
    ],
)
def test_a_process_fits_by_its_group_and_by_everything_that_it_limits(
    demand: Demand, fitting: tuple[NodeOffer, ...]
) -> None:
    assert tuple(each for each in (ANYTHING, SMALL, LARGE, GPU) if fits(demand, each)) == fitting
    assert fits(demand, None), "YARN starts what is asked for"


def test_the_best_is_left_with_the_least_and_what_has_no_limit_comes_last() -> None:
    demand = Demand(memory_mb=1_024, cores=1, tasks=2)
    best_first = (
        NodeOffer(memory_mb=1_024, tasks=2),
        NodeOffer(memory_mb=1_024, tasks=3, cores=1),
        NodeOffer(memory_mb=1_024, tasks=3, cores=4),
        NodeOffer(memory_mb=1_024),
        NodeOffer(memory_mb=2_048, tasks=2, cores=1),
        NodeOffer(tasks=2, cores=1),
        NodeOffer(),
    )
    assert tuple(sorted(best_first[4:] + best_first[:4], key=lambda each: rest(demand, each))) == best_first


@pytest.mark.parametrize(
    ("demand", "offers", "said"),
    [
        (Demand(), (), ""),
        (Demand(memory_mb=1), (SMALL, GPU), ""),
        (
            Demand(),
            (GPU,),
            "every process of the pool is of a group, and the job names none (yarn.container.label, --group)",
        ),
        (
            Demand(group="tpu"),
            (SMALL, GPU),
            "no process of the pool is of group tpu (yarn.container.label, --group)",
        ),
        (
            Demand(memory_mb=9_000),
            (SMALL, LARGE),
            "no process has 9000 MiB, the largest has 8192 (cluster-manager.container.memory.mb, --memory)",
        ),
        (
            Demand(group="gpu", tasks=5),
            (LARGE, GPU),
            "no process of group gpu has 5 tasks, the largest has 4 (job.container.count, --tasks)",
        ),
        (
            Demand(group="gpu", cores=3),
            (GPU,),
            "no process of group gpu has 3 cores, the largest has 2 (cluster-manager.container.cpu.cores, --cores)",
        ),
        (
            Demand(memory_mb=4_096, tasks=8),
            (NodeOffer(memory_mb=8_192, tasks=4), NodeOffer(memory_mb=2_048)),
            "no process has 4096 MiB and 8 tasks at once",
        ),
    ],
)
def test_what_no_process_has_is_named_with_what_to_change(
    demand: Demand, offers: tuple[NodeOffer, ...], said: str
) -> None:
    for is_free in (True, False):
        processes = [PoolProcess("h", each, is_free=is_free) for each in offers]
        assert why_none(demand, processes) == said, "whether they wait is another question"


def test_processes_of_another_version_fit_nothing_and_are_not_a_full_pool() -> None:
    foreign = PoolProcess("h1", ANYTHING, is_foreign=True)
    assert why_none(Demand(), [foreign]) == "the processes of the pool are of another version of standfast"
    assert not why_none(Demand(), [foreign, PoolProcess("h2", ANYTHING, is_free=False)])
    assert "of group gpu" in why_none(Demand(group="gpu"), [foreign, PoolProcess("h2", ANYTHING)])


@pytest.mark.parametrize(
    ("total", "limits", "expected"),
    [
        (8, (0, 0, 0), 3),
        (8, (2, 0, 0), 3),
        (32, (4, 16, 16), 14),
        (32, (4, 0, 0), 14),
        (40, (4, 16, 16), 40),
        (0, (4, 0), 0),
        (5, (), 5),
    ],
)
def test_what_some_cannot_take_goes_to_the_others(total: int, limits: tuple[int, ...], expected: int) -> None:
    assert level(total, limits) == expected
