# SPDX-License-Identifier: Apache-2.0
"""Routes to the application, and the headers of the mesh."""

import pytest

from handfast.rules.envoy import http, inbound_routes, judging, ports
from tests.unit.rules.envoy import tried

PORT = ports.Port(number=80, application=8080)
ROW = judging.PortJudgement()
DENY = judging.Deny(names=frozenset({"a.b"}))


def documents(*rows, headers=True, is_over=False):
    return inbound_routes.documents(PORT, rows or [ROW], DENY, identity_headers=headers, is_over=is_over)


@pytest.mark.parametrize("headers", [True, False])
def test_the_client_is_named_only_where_that_is_wanted_and_never_by_itself(headers):
    document, plaintext = documents(headers=headers)
    for each in (document, plaintext):
        assert {http.CLIENT_ID, judging.VERDICT} < set(each["request_headers_to_remove"])
    assert "request_headers_to_add" not in plaintext
    expected = tried.tried("lds-inbound-tls")["filter_chains"][0]["filters"][0]["typed_config"]["route_config"]
    assert document.get("request_headers_to_add") == (expected["request_headers_to_add"] if headers else None)


def test_what_was_http1_is_http1_again():
    document, _ = documents()
    first, second = document["virtual_hosts"][0]["routes"]
    assert first["match"]["headers"][0]["name"] == http.ORIGINAL_PROTOCOL
    assert first["route"] == {"cluster": PORT.http1_cluster, "timeout": "0s"}
    assert second == {"match": {"prefix": "/"}, "route": {"cluster": PORT.cluster, "timeout": "0s"}}


def test_what_is_judged_is_with_the_routes_and_the_script_with_those_of_tls():
    proved, plaintext = documents()
    assert _judged(proved) == {
        judging.RBAC: judging.matcher([ROW], proved=True),
        judging.LUA: judging.script(DENY),
    }
    assert _judged(plaintext) == {
        judging.RBAC: judging.matcher([ROW], proved=False),
        judging.LUA: judging.observed(),
    }
    assert (proved["name"], plaintext["name"]) == (PORT.routes, PORT.plaintext_routes)


def _judged(document):
    (host,) = document["virtual_hosts"]
    return host["typed_per_filter_config"]


def test_a_path_that_probes_ask_has_routes_of_its_own():
    rows = [judging.PortJudgement(permits=judging.Permits(), open_paths=("/b", "/a"))]
    for document, proved in zip(documents(*rows), (True, False), strict=True):
        routes = document["virtual_hosts"][0]["routes"]
        assert [route["match"].get("path") for route in routes] == ["/a", "/a", "/b", "/b", None, None]
        for route in routes[:4]:
            get, *bare = route["match"]["headers"][:3]
            assert get == {"name": ":method", "string_match": {"exact": "GET"}}
            # Without a body, and not to become something else.
            absent = [row["name"] for row in bare if row["present_match"] and row["invert_match"]]
            assert absent == ["upgrade", "content-length"]
            expected = judging.matcher(rows, proved=proved, path=route["match"]["path"])
            # Probes in plaintext are nobody's calls.
            unseen = {} if proved else {judging.LUA: judging.unobserved()}
            assert route["typed_per_filter_config"] == {judging.RBAC: expected, **unseen}
        assert [route["route"]["cluster"] for route in routes[:2]] == [PORT.http1_cluster, PORT.cluster]


def test_when_the_own_certificate_is_over_nobody_is_served_by_it():
    row = judging.PortJudgement(open_paths=("/a",))
    (proved, plaintext), before = documents(row, is_over=True), documents(row)
    assert _judged(proved)[judging.RBAC] == judging.matcher([judging.OVER], proved=True)
    assert [route["match"].get("path") for route in proved["virtual_hosts"][0]["routes"]] == [None, None]
    assert plaintext == before[1]
