"""Which attempt of which application a container is of, and the name that a leader knows it by. Pure.

Skein numbers containers anew in each attempt of each application (``host-0_0`` is the first of all of them), so its
ids alone say nothing in a cluster of several cells.
"""

from __future__ import annotations


def attempt_of(container: str) -> str:
    """Return the application attempt of a YARN container: its id without the last part.

    YARN makes the ids of an attempt's containers of the attempt's own:
    ``container_e<epoch>_<cluster time>_<application>_<attempt>_<number>``.
    """
    return container.rpartition("_")[0]


def application_of(container: str) -> str:
    """Return the id of the application that a container is of: its cluster time and number."""
    cluster_time, number = container.split("_")[-4:-2]
    return f"application_{cluster_time}_{number}"


def number_of(attempt: str) -> int:
    """Return which attempt of its application one is; YARN's first is 1."""
    return int(attempt.rpartition("_")[2])


def grant_id(attempt: str, skein_id: str) -> str:
    """Return the id of a request, and of the container that it brings, among all attempts of all cells."""
    return f"{attempt}/{skein_id}" if attempt else skein_id
