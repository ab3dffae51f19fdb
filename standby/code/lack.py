"""What an exception tells about the machine it was raised on, or about a service, and not about who raised it. Pure.

Code that is right may raise such an exception, and the same call may succeed later.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import Final

from standby.shared.errortext import text_of

#: What the system says about a file that it cannot open or write, although its name is right.
_LACKING: Final = (
    *(errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO),
    *(errno.ENOMEM, errno.EAGAIN, errno.ENOBUFS),
)
_SAID_OF_LACK: Final = tuple(map(os.strerror, _LACKING))

#: Errors about whoever does not answer.
_UNREACHABLE: Final = (ConnectionError, TimeoutError, socket.gaierror)

_NO_THREAD: Final = "can't start new thread"


def is_lack(error: BaseException) -> bool:
    """Return whether ``error`` itself, whatever its cause, tells of the machine, or of a service that is away."""
    if isinstance(error, OSError):
        return error.errno in _LACKING or isinstance(error, _UNREACHABLE)
    if isinstance(error, ImportError):
        # The loader of compiled modules raises no other.
        return tells_of_lack(text_of(error))
    return isinstance(error, MemoryError) or _NO_THREAD in text_of(error)


def tells_of_lack(message: str) -> bool:
    """Return whether ``message`` has the system's words for a machine that lacks something."""
    return any(each in message for each in _SAID_OF_LACK)
