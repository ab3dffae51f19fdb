"""An OAuth 2.0 authorization server for client credentials: it issues tokens for secrets, and has a public key."""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

if TYPE_CHECKING:
    from typing_extensions import Self

AUDIENCE: Final = "kafka"
_KEY_ID: Final = "one"


class TokenServer:
    """Serves on loopback; gives each client, for the secret of all, tokens that last as long as it says."""

    def __init__(self, secret: str, lifetimes_seconds: Mapping[str, int]) -> None:
        """``lifetimes_seconds``: id of a client → lifetime of its tokens."""
        self._secret, self._lifetimes = secret, lifetimes_seconds
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        #: How many tokens each client was given.
        self.given: Counter[str] = Counter()
        server = self

        class Requests(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._say(200, {"keys": [server.public_key()]})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
                client = server.client_in(self.headers.get("Authorization", ""), body)
                if client:
                    self._say(200, server.token(client))
                else:
                    self._say(401, {"error": "invalid_client", "error_description": "the secret is wrong"})

            def _say(self, status: int, answer: dict[str, Any]) -> None:
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the parent class has it so)
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Requests)
        root = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.keys_url, self.token_url = f"{root}/keys", f"{root}/token"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def client_in(self, authorization: str, body: str) -> str:
        """Return the client that the request proves to come from; empty: it proves nothing."""
        asked = dict(urllib.parse.parse_qsl(body))
        for client in self._lifetimes:
            proof = base64.b64encode(f"{client}:{self._secret}".encode()).decode()
            if asked.get("grant_type") == "client_credentials" and authorization == f"Basic {proof}":
                return client
        return ""

    def token(self, client: str) -> dict[str, Any]:
        """Return a new token, as RFC 6749 has the answer."""
        self.given[client] += 1
        now, lifetime = int(time.time()), self._lifetimes[client]
        head = {"alg": "RS256", "kid": _KEY_ID, "typ": "JWT"}
        claims = {
            "sub": client,
            "aud": AUDIENCE,
            "iss": "tests",
            "scope": "all",
            "jti": f"{client}-{self.given[client]}",
            "iat": now,
            "exp": now + lifetime,
        }
        signed = ".".join(_encoded(json.dumps(each).encode()) for each in (head, claims))
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        token = f"{signed}.{_encoded(signature)}"
        return {"access_token": token, "token_type": "Bearer", "expires_in": lifetime}

    def public_key(self) -> dict[str, str]:
        """Return the key that proves the signatures, as a JWK."""
        numbers = self._key.public_key().public_numbers()
        return {
            "kty": "RSA",
            "alg": "RS256",
            "use": "sig",
            "kid": _KEY_ID,
            "n": _encoded(numbers.n.to_bytes(256, "big")),
            "e": _encoded(numbers.e.to_bytes(3, "big")),
        }


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
