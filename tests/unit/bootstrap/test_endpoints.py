# SPDX-License-Identifier: Apache-2.0
"""Addresses of API servers, as typed and as kubeconfigs hold them."""

from __future__ import annotations

import pytest

from handfast import errors
from handfast.bootstrap import endpoints


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("192.168.122.100", "https://192.168.122.100:6443"),
        ("192.168.122.100:8443", "https://192.168.122.100:8443"),
        ("api.example.com", "https://api.example.com:6443"),
        ("API.Example.com:443", "https://api.example.com:443"),
        ("node_1", "https://node_1:6443"),
        ("api.example.com.", "https://api.example.com.:6443"),
        ("[::1]", "https://[::1]:6443"),
        ("[2001:DB8:0::1]:443", "https://[2001:db8::1]:443"),
        ("https://api.example.com", "https://api.example.com:6443"),
        ("HTTPS://api.example.com/", "https://api.example.com:6443"),
        ("https://api.example.com:443/clusters/one/", "https://api.example.com:443/clusters/one"),
        ("https://[::1]:6443", "https://[::1]:6443"),
        ("host:1", "https://host:1"),
        ("host:65535", "https://host:65535"),
        (f"{'a' * 63}.b", f"https://{'a' * 63}.b:6443"),
    ],
)
def test_an_address_is_read_as_people_type_it(text, url):
    found = endpoints.parse(text)
    assert found.url == url
    assert endpoints.parse(found.url) == found
    assert url == f"https://{found}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no host"),
        (":6443", "no host"),
        ("http://api.example.com", "scheme http;"),
        ("ftp://api.example.com", "scheme ftp;"),
        ("https://", "no host"),
        ("https://user:secret@api.example.com", "credentials"),
        ("https://api.example.com?x=1", "query"),
        ("https://api.example.com#x", "query or a fragment"),
        ("https://api.example.com/a b", "path"),
        ("https://api.example.com//x", "path"),
        ("https://[::1", "not an https URL"),
        ("::1", "more than one colon"),
        ("fe80::1:6443", "more than one colon"),
        ("[::1", "brackets"),
        ("[::1]6443", "brackets"),
        ("[::1%eth0]:6443", "zone"),
        ("[127.0.0.1]:6443", "no IPv6 address"),
        ("[]", "no IPv6 address"),
        ("256.0.0.1", "no IPv4 address"),
        ("192.168.1", "no IPv4 address"),
        ("host:", "port"),
        ("host:0", "port"),
        ("host:65536", "port"),
        ("host:١", "port"),
        ("host:+1", "port"),
        ("host:6443\n", "port"),
        ("https://a\nb", "is not an https URL"),
        ("https://a/x\ty", "is not an https URL"),
        ("a b", "neither"),
        ("-a", "neither"),
        ("a..b", "neither"),
        ("bücher.example", "neither"),
        (f"{'a' * 64}.b", "neither"),
        ("a." * 127 + "a", "neither"),
        ("a." * 126 + "aa", "neither"),
        ("host/path", "neither"),
    ],
)
def test_what_is_no_address_is_refused_with_why(text, why):
    with pytest.raises(errors.Refused, match=why) as caught:
        endpoints.parse(text)
    assert caught.value.reason == "BadEndpoint"
    assert caught.value.hint
    assert "secret" not in caught.value.message


def test_the_longest_name_of_a_host():
    longest = "a." * 126 + "a"
    assert endpoints.parse(f"{longest}:6443").host == longest


def test_a_long_text_is_not_repeated():
    with pytest.raises(errors.Refused) as caught:
        endpoints.parse("a b" * 1000)
    assert len(caught.value.message) < 500


@pytest.mark.parametrize(
    ("text", "url"),
    [("https://a.example", "https://a.example:443"), ("https://127.0.0.1:6443/", "https://127.0.0.1:6443")],
)
def test_of_server(text, url):
    assert endpoints.of_server(text).url == url


@pytest.mark.parametrize("text", ["a.example:6443", "http://a.example", ""])
def test_of_server_takes_urls_only(text):
    with pytest.raises(errors.Refused) as caught:
        endpoints.of_server(text)
    assert caught.value.reason == "BadEndpoint"
