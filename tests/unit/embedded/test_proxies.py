"""Proxies of the environment as options of a JVM."""

from __future__ import annotations

import pytest

from embedded.proxies import java_options
from standby.errors import BadConfiguration

AROUND = "-Dhttp.nonProxyHosts=localhost|127.*|[::1]"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ()),
        ({"http_proxy": ""}, ()),
        ({"no_proxy": "a"}, ()),
        ({"http_proxy": "http://p:3128"}, ("-Dhttp.proxyHost=p", "-Dhttp.proxyPort=3128", AROUND)),
        ({"HTTP_PROXY": "p:3128/"}, ("-Dhttp.proxyHost=p", "-Dhttp.proxyPort=3128", AROUND)),
        ({"https_proxy": "http://p"}, ("-Dhttps.proxyHost=p", "-Dhttps.proxyPort=80", AROUND)),
        (
            {"ALL_PROXY": "http://p:1", "https_proxy": "http://q:2", "HTTPS_PROXY": "http://r:3"},
            (
                *("-Dhttp.proxyHost=p", "-Dhttp.proxyPort=1"),
                *("-Dhttps.proxyHost=q", "-Dhttps.proxyPort=2", AROUND),
            ),
        ),
        (
            {"all_proxy": "socks5h://p"},
            ("-DsocksProxyHost=p", "-DsocksProxyPort=1080", AROUND),
        ),
        (
            {"https_proxy": "http://me:a%3Ab@p:1"},
            (
                *("-Dhttps.proxyHost=p", "-Dhttps.proxyPort=1"),
                *("-Dhttp.proxyUser=me", "-Dhttp.proxyPassword=a:b"),
                *("-Djdk.http.auth.tunneling.disabledSchemes=", AROUND),
            ),
        ),
        (
            {"http_proxy": "p:1", "no_proxy": ".corp, repo:8080,"},
            ("-Dhttp.proxyHost=p", "-Dhttp.proxyPort=1", f"{AROUND}|corp|*.corp|repo|*.repo"),
        ),
        ({"http_proxy": "p:1", "NO_PROXY": "*"}, ()),
        ({"http_proxy": "p:1", "JAVA_TOOL_OPTIONS": "-Dhttps.proxyHost=q"}, ()),
        ({"http_proxy": "p:1", "_JAVA_OPTIONS": "-DsocksProxyHost=q"}, ()),
    ],
)
def test_variables_become_options(environment: dict[str, str], expected: tuple[str, ...]) -> None:
    assert java_options(environment) == expected


@pytest.mark.parametrize("value", ["http://", "http://p:port", "http://me:secret@:80"])
def test_what_is_no_proxy_is_named_without_its_password(value: str) -> None:
    with pytest.raises(BadConfiguration, match="https_proxy in the environment is no proxy") as raised:
        java_options({"https_proxy": value})
    assert "secret" not in str(raised.value)
