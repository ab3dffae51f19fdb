"""The grouper named by a job's configuration. Not pure: a job's own grouper has to be imported."""

from __future__ import annotations

from collections.abc import Sequence

from appmaster.planning.state.grouping import GROUPERS, Grouper
from standby.errors import BadConfiguration
from standby.feed import functions

_KEY = "job.grouper"

#: What to do about a module that does not exist; masters do not have the job's modules on their import path.
_REMEDY = "install its package into the Python of the application masters and of this command"


def resolve(name: str) -> Grouper:
    """Return the grouper called ``name``: ``balanced``, ``range``, or ``module:function``.

    Raises `BadConfiguration` if there is none, or if its import raises. An exception of a job's own grouper becomes a
    `BadConfiguration`, too: an error in user code must not look like a bug of the master.
    """
    if name in GROUPERS:
        return GROUPERS[name]
    if ":" not in name:
        raise BadConfiguration(f"{_KEY}: {name!r} is not one of {', '.join(GROUPERS)}, nor module:function")
    function = functions.resolve(_KEY, name, ("tasks", "processors"), remedy=_REMEDY)

    def grouper(tasks: Sequence[int], processors: int) -> Sequence[Sequence[int]]:
        try:
            groups: Sequence[Sequence[int]] = function(tasks, processors)
        except Exception as error:
            raise BadConfiguration(f"{_KEY}: {name} raised {type(error).__name__}: {error}") from error
        return groups

    return grouper
