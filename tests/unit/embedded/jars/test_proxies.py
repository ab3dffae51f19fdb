"""Proxies of the environment as options of a JVM."""

from __future__ import annotations

import pytest

from embedded.jars.proxies import java_options
from standby.errors import BadConfiguration

AROUND = "http.nonProxyHosts=localhost|127.*|[::1]"

AS_ME = "http.proxyUser=me http.proxyPassword=a:b jdk.http.auth.tunneling.disabledSchemes="

#: Variables of the environment, and options without what they begin with.
OPTIONS: tuple[tuple[dict[str, str], str], ...] = (
    ({}, ""),
    ({"http_proxy": ""}, ""),
    ({"no_proxy": "a"}, ""),
    ({"http_proxy": "http://p:3128"}, f"http.proxyHost=p http.proxyPort=3128 {AROUND}"),
    ({"HTTP_PROXY": "p:3128/"}, f"http.proxyHost=p http.proxyPort=3128 {AROUND}"),
    ({"https_proxy": "http://p"}, f"https.proxyHost=p https.proxyPort=80 {AROUND}"),
    (
        {"ALL_PROXY": "http://p:1", "https_proxy": "http://q:2", "HTTPS_PROXY": "http://r:3"},
        f"http.proxyHost=p http.proxyPort=1 https.proxyHost=q https.proxyPort=2 {AROUND}",
    ),
    ({"all_proxy": "socks5h://p"}, f"socksProxyHost=p socksProxyPort=1080 {AROUND}"),
    (
        {"https_proxy": "http://me:a%3Ab@p:1"},
        f"https.proxyHost=p https.proxyPort=1 {AS_ME} {AROUND}",
    ),
    (
        {"http_proxy": "p:1", "no_proxy": ".corp, repo:8080,"},
        f"http.proxyHost=p http.proxyPort=1 {AROUND}|corp|*.corp|repo|*.repo",
    ),
    ({"http_proxy": "p:1", "NO_PROXY": "*"}, ""),
    ({"http_proxy": "p:1", "JAVA_TOOL_OPTIONS": "-Dhttps.proxyHost=q"}, ""),
    ({"http_proxy": "p:1", "_JAVA_OPTIONS": "-DsocksProxyHost=q"}, ""),
)


def test_variables_become_options() -> None:
    for environment, expected in OPTIONS:
        assert java_options(environment) == tuple(f"-D{each}" for each in expected.split()), environment


@pytest.mark.parametrize("value", ["http://", "http://p:port", "http://me:secret@:80"])
def test_what_is_no_proxy_is_named_without_its_password(value: str) -> None:
    with pytest.raises(BadConfiguration, match="https_proxy in the environment is not a proxy") as raised:
        java_options({"https_proxy": value})
    assert "secret" not in str(raised.value)
