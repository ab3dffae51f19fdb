"""Proxies that the environment names, as a JVM takes them: it does not look there by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from standby.errors import BadConfiguration

#: Where people give a JVM options of their own; a proxy among these stands.
_OWN: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")

#: What a JVM passes every proxy by for, unless it is told otherwise.
_DIRECT: Final = ("localhost", "127.*", "[::1]")

_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}
_SOCKS_PORT: Final = 1080


def java_options(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the system properties (``-Dname=value``) by which a JVM downloads through the environment's proxies.

    ``http_proxy``, ``https_proxy``, ``all_proxy`` and ``no_proxy`` count, in small letters before capitals, as with
    pip. Nothing is returned when ``JAVA_TOOL_OPTIONS`` or its like name a proxy. A password may be among them: they are
    no arguments of a command. Raises `BadConfiguration` for a proxy that cannot be read.
    """
    if any(
        "proxyHost" in environment.get(each, "") or "ProxyHost" in environment.get(each, "") for each in _OWN
    ):
        return ()
    excepted = [each.strip() for each in _value(environment, "no_proxy").split(",") if each.strip()]
    if "*" in excepted:
        return ()
    options: list[str] = []
    for scheme in ("http", "https"):
        names = (f"{scheme}_proxy", "all_proxy")
        name = next((each for each in names if _value(environment, each)), None)
        if name is not None:
            options += _properties(scheme, name, _value(environment, name))
    if options:
        around = "|".join((*_DIRECT, *(pattern for each in excepted for pattern in _patterns(each))))
        # For https, too.
        options.append(f"-Dhttp.nonProxyHosts={around}")
    return tuple(dict.fromkeys(options))


def _value(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.upper(), "")


def _properties(scheme: str, name: str, value: str) -> Iterator[str]:
    proxy, port = _parsed(name, value)
    if proxy.scheme.startswith("socks"):
        yield f"-DsocksProxyHost={proxy.hostname}"
        yield f"-DsocksProxyPort={port or _SOCKS_PORT}"
        return
    yield f"-D{scheme}.proxyHost={proxy.hostname}"
    yield f"-D{scheme}.proxyPort={port or _PORTS.get(proxy.scheme, 80)}"
    if proxy.username:
        # Ivy reads these, for both.
        yield f"-Dhttp.proxyUser={unquote(proxy.username)}"
        yield f"-Dhttp.proxyPassword={unquote(proxy.password or '')}"
        # A JVM does not log in by name and password at a proxy for https unless it is allowed to.
        yield "-Djdk.http.auth.tunneling.disabledSchemes="


def _parsed(name: str, value: str) -> tuple[SplitResult, int | None]:
    try:
        # Without a scheme, as many have it, what stands before the port would be taken for one.
        proxy = urlsplit(value if "://" in value else f"http://{value}")
        port = proxy.port
    except ValueError:
        proxy, port = SplitResult("", "", "", "", ""), None
    if not proxy.hostname:
        # The value may have a password.
        raise BadConfiguration(
            f"{name} in the environment is no proxy: it has to be like http://proxy.example:3128"
        )
    return proxy, port


def _patterns(excepted: str) -> Iterator[str]:
    """Yield what a JVM has for an entry of ``no_proxy``: a host or a domain, with what is below."""
    host = excepted if excepted.count(":") > 1 else excepted.partition(":")[0]
    host = host.removeprefix("*").removeprefix(".")
    yield host
    yield f"*.{host}"
