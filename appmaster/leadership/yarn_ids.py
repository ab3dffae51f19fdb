"""The application attempt of a container, and the name by which a leader knows it. Pure.

Skein numbers containers separately in each attempt of each application (``host-0_0`` is the first of any of them), so
its ids are ambiguous in a cluster of several cells.
"""

from __future__ import annotations


def attempt_of(container: str) -> str:
    """Return the application attempt of a YARN container: its id without the last part.

    YARN derives the ids of an attempt's containers from the attempt's id:
    ``container_e<epoch>_<cluster time>_<application>_<attempt>_<number>``.
    """
    return container.rpartition("_")[0]


def application_of(container: str) -> str:
    """Return the id of a container's application: its cluster time and number."""
    cluster_time, number = container.split("_")[-4:-2]
    return f"application_{cluster_time}_{number}"


def number_of(attempt: str) -> int:
    """Return the number of an attempt; YARN's first is 1."""
    return int(attempt.rpartition("_")[2])


def grant_id(attempt: str, skein_id: str) -> str:
    """Return an id of a request, and of its container, that is unique among all attempts of all cells."""
    return f"{attempt}/{skein_id}" if attempt else skein_id
