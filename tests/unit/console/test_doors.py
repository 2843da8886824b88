# SPDX-License-Identifier: Apache-2.0
"""The doors of a console: other names, other sites and other networks come no further."""

from __future__ import annotations

import pytest

from handfast import errors
from handfast.console import doors, html
from handfast.rules import networks
from handfast.runtime import addresses

HERE = addresses.Address("127.0.0.1", 8765)
OWN = doors.Doors("http", doors.hosts_of(HERE, ()), None)
HOST = {"Host": "127.0.0.1:8765"}
FROM_OURS = {**HOST, "Origin": "http://127.0.0.1:8765", "Sec-Fetch-Site": "same-origin"}


def code(of: doors.Doors, method: str, headers: dict[str, str], address: str = "127.0.0.1") -> int:
    """Of the answer; 0: it is let in."""
    try:
        of.require(doors.Request(method, address, headers))
    except doors.NotOurs as refused:
        return refused.code if refused.reason else -1
    return 0


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:8765", "[::1]:8765", "LOCALHOST:8765"])
def test_loopback_has_three_names(host: str):
    assert code(OWN, "GET", {"Host": host}) == 0


@pytest.mark.parametrize(
    "host", ["evil.example:8765", "127.0.0.1", "127.0.0.1:80", "", "127.0.0.1:8765.evil.example", "0.0.0.0:8765"]
)
def test_another_name_is_turned_away(host: str):
    assert code(OWN, "GET", {"Host": host}) == 421
    assert code(OWN, "POST", {**FROM_OURS, "Host": host}) == 421


def test_a_post_from_a_page_of_ours_is_let_in():
    assert code(OWN, "POST", FROM_OURS) == 0
    # A browser that knows nothing of Sec-Fetch-Site says an Origin all the same.
    assert code(OWN, "POST", {**HOST, "Origin": "http://127.0.0.1:8765"}) == 0


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none"])
def test_a_post_from_elsewhere_is_turned_away(site: str):
    assert code(OWN, "POST", {**FROM_OURS, "Sec-Fetch-Site": site}) == 403
    assert code(OWN, "POST", {**FROM_OURS, "Origin": "https://evil.example"}) == 403


@pytest.mark.parametrize("origin", ["", "null", "http://127.0.0.1:8765.evil.example", "https://127.0.0.1:8765"])
def test_a_post_without_an_origin_is_turned_away(origin: str):
    assert code(OWN, "POST", {**HOST, "Origin": origin}) == 403


def test_another_port_is_another_origin():
    assert code(OWN, "POST", {**HOST, "Origin": "http://127.0.0.1:9999", "Sec-Fetch-Site": "same-site"}) == 403
    assert OWN.is_led_here(doors.Request("GET", "127.0.0.1", {**HOST, "Sec-Fetch-Site": "same-site"}))
    assert not OWN.is_led_here(doors.Request("GET", "127.0.0.1", HOST))


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"])
def test_other_methods_are_turned_away(method: str):
    assert code(OWN, method, FROM_OURS) == 405


def test_a_page_cannot_be_shown_inside_another():
    headers = html.page("x").headers
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert (headers["Referrer-Policy"], headers["Cache-Control"]) == ("same-origin", "no-store")


def test_only_networks_that_were_named():
    listen = addresses.Address("0.0.0.0", 8443)
    hosts = doors.hosts_of(listen, ("console.example", "192.0.2.7", "2001:db8::7"))
    own = doors.Doors("https", hosts, networks.Networks.parse("192.0.2.0/24"))
    assert hosts == {"console.example:8443", "192.0.2.7:8443", "[2001:db8::7]:8443"}
    assert code(own, "GET", {"Host": "console.example:8443"}, "192.0.2.99") == 0
    assert code(own, "GET", {"Host": "console.example:8443"}, "198.51.100.1") == 403
    assert (
        code(own, "POST", {"Host": "console.example:8443", "Origin": "https://console.example:8443"}, "192.0.2.99") == 0
    )
    assert doors.hosts_of(addresses.Address("192.0.2.7", 1), ()) == {"192.0.2.7:1"}


@pytest.mark.parametrize(("scheme", "port"), [("http", 80), ("https", 443)])
def test_a_browser_leaves_out_the_usual_port(scheme: str, port: int):
    listen = addresses.Address("192.0.2.7", port)
    own = doors.Doors(scheme, doors.hosts_of(listen, ("console.example", "2001:db8::7")), None)
    for host in ("console.example", "192.0.2.7", "[2001:db8::7]", f"console.example:{port}"):
        assert code(own, "POST", {"Host": host, "Origin": f"{scheme}://{host}"}) == 0
    for host in ("evil.example", "console.example:8080", "console.example."):
        assert code(own, "GET", {"Host": host}) == 421


def test_a_console_without_a_name_is_refused():
    with pytest.raises(errors.Refused, match="has no name by which the console could be called"):
        doors.hosts_of(addresses.Address("0.0.0.0", 8443), ())
