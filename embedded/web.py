"""The one place where pages of this machine and of the cluster are read with `urllib`: past every proxy.

``http_proxy`` and its like in the environment are for downloads, which Ivy makes (`embedded.jars.ivy`).
``make lint`` refuses `urllib.request.urlopen`, which follows them.
"""

from __future__ import annotations

import urllib.request
from typing import Any, Final

#: An empty table of proxies, rather than the environment's.
_DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def open_url(url: str | urllib.request.Request, timeout: float) -> Any:
    """Return the response of the server itself, to be closed; ``timeout`` is in seconds, for each wait.

    Raises :class:`OSError` when there is none, as :class:`urllib.error.HTTPError` for a status that is no success.
    """
    return _DIRECT.open(url, timeout=timeout)
