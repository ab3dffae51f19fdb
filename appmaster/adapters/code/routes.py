"""Serves and receives bundles of code on a candidate's port for peers; the client is `standby.adapters.peers.code`."""

from __future__ import annotations

import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from appmaster.code.store import BundleStore
from standby.errors import BadConfiguration, CorruptState
from standby.shared.peers import PeerAnswer, PeerRequest, PeerRoute, refusal
from standby.shared.roles import Caller, PeerRole

#: Roles that may have code run by the cluster: a container's credentials are accessible to users' code.
_UPLOADS: Final = frozenset({PeerRole.OPERATOR, PeerRole.MASTER})


def code_route(
    store: BundleStore, received: Callable[[str], None], audit: Callable[[Caller, str, bool], None]
) -> PeerRoute:
    """Return the route under `standby.shared.peers.CODE_ROUTE`; ``received`` is called for each uploaded bundle.

    ``GET code/<digest>`` returns a bundle, from ``Range`` on. ``POST code/<digest>?start=<n>&size=<all>`` takes the
    bytes from ``start`` on and returns how many there are, so that the sender continues from there. Only operators and
    masters may upload. When a bundle is complete or refused, ``audit`` is called with the caller, the bundle, and
    whether it was refused.
    """

    def answer(request: PeerRequest) -> PeerAnswer:
        if len(request.path) != 2 or request.method not in ("GET", "POST"):
            return refusal(HTTPStatus.NOT_FOUND, "GET or POST code/<digest>")
        bundle = request.path[1]
        try:
            if request.method == "GET":
                return _give(store, bundle, request.start)
            if request.caller.role not in _UPLOADS:
                audit(request.caller, bundle, True)
                return refusal(HTTPStatus.FORBIDDEN, f"{request.caller} may not upload code")
            return _take(store, bundle, request, received, audit)
        except BadConfiguration as error:
            return refusal(HTTPStatus.BAD_REQUEST, str(error))
        except CorruptState as error:
            return refusal(HTTPStatus.CONFLICT, str(error))

    return answer


def _give(store: BundleStore, bundle: str, start: int) -> PeerAnswer:
    if not store.has(bundle):
        return refusal(HTTPStatus.NOT_FOUND, f"bundle {bundle} is not here")
    return PeerAnswer(
        HTTPStatus.PARTIAL_CONTENT if start else HTTPStatus.OK,
        store.read(bundle, start),
        "application/zip",
        length=max(0, store.size(bundle) - start),
    )


def _take(
    store: BundleStore,
    bundle: str,
    request: PeerRequest,
    received: Callable[[str], None],
    audit: Callable[[Caller, str, bool], None],
) -> PeerAnswer:
    try:
        start, size = int(request.query["start"]), int(request.query["size"])
    except (KeyError, ValueError):
        raise BadConfiguration("an upload needs start and size") from None
    present = store.append(bundle, start, request.body)
    if present >= size and not store.has(bundle):
        store.complete(bundle, store.part(bundle))
    is_complete = store.has(bundle)
    if is_complete:
        # Also if it was here before: it may have been deleted meanwhile, and is wanted again now.
        received(bundle)
        audit(request.caller, bundle, False)
    body = json.dumps({"size": present, "complete": is_complete}).encode()
    return PeerAnswer(HTTPStatus.OK, body)
