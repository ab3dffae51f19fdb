"""The only module that reads web pages of this machine and of the cluster with `urllib`; it bypasses proxies.

``http_proxy`` and similar variables are for downloads, which are made by Ivy (`embedded.jars.ivy`). ``make lint``
rejects `urllib.request.urlopen`, which uses them.
"""

from __future__ import annotations

import urllib.request
from typing import Any, Final

#: An empty set of proxies instead of the environment's.
_DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def open_url(url: str | urllib.request.Request, timeout: float) -> Any:
    """Return the response of the server itself; the caller closes it. ``timeout`` is in seconds, for each wait.

    Raises :class:`OSError` if there is no response, and its :class:`urllib.error.HTTPError` for an error status.
    """
    return _DIRECT.open(url, timeout=timeout)
