"""Converts the environment's proxies to options of a JVM, which does not read the environment itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from standby.errors import BadConfiguration

#: Variables with the user's own JVM options; a proxy in them takes precedence.
_OWN: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")

#: Hosts for which a JVM bypasses proxies by default.
_DIRECT: Final = ("localhost", "127.*", "[::1]")

_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}
_SOCKS_PORT: Final = 1080


def java_options(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the system properties (``-Dname=value``) that make a JVM use the environment's proxies.

    ``http_proxy``, ``https_proxy``, ``all_proxy`` and ``no_proxy`` are read; lower case has precedence over upper
    case, as in pip. Nothing is returned if ``JAVA_TOOL_OPTIONS`` or a similar variable has a proxy. The result may
    include a password, so it must not be passed as arguments of a command. Raises `BadConfiguration` for a proxy
    that cannot be parsed.
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
        # Also applies to https.
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
        # Read by Ivy, for http and https.
        yield f"-Dhttp.proxyUser={unquote(proxy.username)}"
        yield f"-Dhttp.proxyPassword={unquote(proxy.password or '')}"
        # By default a JVM does not use name and password with a proxy for https.
        yield "-Djdk.http.auth.tunneling.disabledSchemes="


def _parsed(name: str, value: str) -> tuple[SplitResult, int | None]:
    try:
        # Many values have no scheme; the host before the port would be parsed as one.
        proxy = urlsplit(value if "://" in value else f"http://{value}")
        port = proxy.port
    except ValueError:
        proxy, port = SplitResult("", "", "", "", ""), None
    if not proxy.hostname:
        # The value is not shown, as it may include a password.
        raise BadConfiguration(
            f"{name} in the environment is not a proxy: it must have a form like http://proxy.example:3128"
        )
    return proxy, port


def _patterns(excepted: str) -> Iterator[str]:
    """Yield the JVM's patterns for an entry of ``no_proxy``: a host or a domain, and its subdomains."""
    host = excepted if excepted.count(":") > 1 else excepted.partition(":")[0]
    host = host.removeprefix("*").removeprefix(".")
    yield host
    yield f"*.{host}"
