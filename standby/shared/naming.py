"""Names of a job's external resources: topics, group, transactional ids, paths. Pure.

Names are composed here and never parsed. Parts are escaped, so that two jobs whose names differ only in a dot, dash
or underscore never share a name.
"""

from __future__ import annotations

import re
from typing import Final

from standby.shared.model import TaskId
from standby.shared.roles import PeerRole

#: Allowed names of jobs, clusters and bundles; not ``.`` or ``..``, because names are used in paths.
NAME: Final = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,120}\Z")

#: The same in words.
NAME_WORDS: Final = "up to 120 letters, digits, dots, underscores and dashes, but not . or .. alone"

#: Root of everything in ZooKeeper.
ROOT: Final = "/standfast"

#: Stands for the attempt of an application where containers are processes of a pool.
POOL: Final = "pool"

#: The child of a bundle's znode that is not a candidate.
CODE_PARTS: Final = "parts"


def escape(part: str) -> str:
    """Return ``part`` with its dots and underscores escaped as ``_d`` and ``_u``.

    Kafka treats a dot and an underscore in topic names as equal. After escaping, an underscore is always followed by
    a letter, so different names stay different under that rule, too, and ``__`` can separate them.
    """
    return part.replace("_", "_u").replace(".", "_d")


def _join(*parts: str) -> str:
    return "__".join(("standfast", *(escape(part) for part in parts)))


def changelog_topic(cluster: str, job: str, stage: str, run: str) -> str:
    """Return the changelog topic; it contains the run id, so a recreated job never reads old state."""
    return _join(cluster, job, stage, run, "changelog")


def event_topic(cluster: str) -> str:
    """Return the topic of the cluster's event log."""
    return _join(cluster, "events")


def consumer_group(cluster: str, job: str, stage: str, run: str) -> str:
    """Return the group with which a run commits its input offsets."""
    return _join(cluster, job, stage, run)


def transactional_id(cluster: str, task: TaskId) -> str:
    """Return the task's transactional id: without a run id, so that any later owner fences any earlier one."""
    return _join(cluster, task.job, task.stage, str(task.partition))


def state_path(cluster: str, host: str, task: TaskId, run: str) -> str:
    """Return the task's directory below a state directory: ``<cluster>/<host>/<job>/<run>/<stage>.<n>``."""
    return f"{run_path(cluster, host, task.job, run)}/{escape(task.stage)}.{task.partition}"


def run_path(cluster: str, host: str, job: str, run: str) -> str:
    """Return the directory of a job's run below a state directory, in which those of its tasks are."""
    return f"{escape(cluster)}/{escape(host)}/{escape(job)}/{run}"


def cluster_path(cluster: str) -> str:
    """Return the cluster's root in ZooKeeper."""
    return f"{ROOT}/{cluster}"


def task_path(cluster: str, task: TaskId) -> str:
    """Return the znode of a task's record."""
    return f"{ROOT}/{cluster}/jobs/{task.job}/tasks/{task.stage}.{task.partition}"


def container_path(cluster: str, container: str) -> str:
    """Return the ephemeral znode of a container."""
    return f"{ROOT}/{cluster}/containers/{container}"


def pool_path(cluster: str) -> str:
    """Return the znode below which the processes of a pool are."""
    return f"{ROOT}/{cluster}/pool"


def member_path(cluster: str, container: str) -> str:
    """Return the ephemeral znode of a process of a pool, which has the id of the container that it is or becomes."""
    return f"{pool_path(cluster)}/{container}"


def member_id(host: str, unique: str) -> str:
    """Return the id of a process of a pool; ``unique`` differs at each start.

    Its part before the last underscore is `POOL`, as that of a YARN container is the attempt that it belongs to.
    """
    return f"{POOL}_{host.replace('_', '-')}-{unique}"


def credentials_path(cluster: str, role: PeerRole) -> str:
    """Return the znode with the latest credentials of a role."""
    return f"{ROOT}/{cluster}/credentials/{role.value}"


def controller_path(cluster: str) -> str:
    """Return the ephemeral znode of the leader: candidate id, address, epoch."""
    return f"{ROOT}/{cluster}/controller"


def controller_epoch_path(cluster: str) -> str:
    """Return the znode whose data is the highest controller epoch, and whose version every write checks."""
    return f"{ROOT}/{cluster}/controller_epoch"


def controller_beat_path(cluster: str) -> str:
    """Return the znode to which the leader periodically writes its epoch, as a sign of life."""
    return f"{ROOT}/{cluster}/controller_beat"


def jobs_path(cluster: str) -> str:
    """Return the znode below which the jobs are."""
    return f"{ROOT}/{cluster}/jobs"


def job_path(cluster: str, job: str) -> str:
    """Return the znode of a job: its definition and requested state."""
    return f"{ROOT}/{cluster}/jobs/{job}"


def tasks_path(cluster: str, job: str) -> str:
    """Return the node above a job's task records; its version rises with each record that names a revision."""
    return f"{job_path(cluster, job)}/tasks"


def model_path(cluster: str, job: str) -> str:
    """Return the znode of a job's model."""
    return f"{job_path(cluster, job)}/model"


def drained_path(cluster: str) -> str:
    """Return the znode with the drained hosts."""
    return f"{ROOT}/{cluster}/drained"


def cells_path(cluster: str) -> str:
    """Return the znode below which the cells are."""
    return f"{ROOT}/{cluster}/cells"


def cell_path(cluster: str, cell: int) -> str:
    """Return the znode of a cell: its YARN application."""
    return f"{cells_path(cluster)}/{cell}"


def submitting_path(cluster: str) -> str:
    """Return the znode of the command that is submitting the cluster's cells (ephemeral)."""
    return f"{ROOT}/{cluster}/submitting"


def code_root_path(cluster: str) -> str:
    """Return the parent znode of the code bundles."""
    return f"{ROOT}/{cluster}/code"


def code_path(cluster: str, digest: str) -> str:
    """Return the znode of a code bundle.

    Its data is empty, or the tombstone of a deleted bundle. Its children are the candidates that hold the bundle
    (`code_source_path`), and `code_parts_path`.
    """
    return f"{code_root_path(cluster)}/{digest}"


def code_source_path(cluster: str, digest: str, candidate: str) -> str:
    """Return the ephemeral znode of a candidate that holds a bundle."""
    return f"{code_path(cluster, digest)}/{candidate}"


def code_parts_path(cluster: str, digest: str) -> str:
    """Return the parent znode of a bundle that is stored in ZooKeeper: ``0``, ``1``, …, ``complete``."""
    return f"{code_path(cluster, digest)}/{CODE_PARTS}"


def code_part_path(cluster: str, digest: str, number: int) -> str:
    """Return the znode of one part of a code bundle."""
    return f"{code_parts_path(cluster, digest)}/{number}"


def code_complete_path(cluster: str, digest: str) -> str:
    """Return the znode that is written last: its data is the number of parts of the bundle."""
    return f"{code_parts_path(cluster, digest)}/complete"


def changes_path(cluster: str) -> str:
    """Return the parent znode of queued changes and their results."""
    return f"{ROOT}/{cluster}/changes"


def change_path(cluster: str, change: str) -> str:
    """Return the znode of a queued change."""
    return f"{changes_path(cluster)}/{change}"
