# SPDX-License-Identifier: Apache-2.0
"""URL and method -> what is asked, and which URLs are refused."""

from __future__ import annotations

import pytest

from handfast.api import status
from handfast.apiserver import request

RESOURCES = [
    # method, target, verb, group, version, namespace, plural, name, subresource
    ("GET", "/api/v1/secrets", "list", "", "v1", "", "secrets", "", ""),
    ("GET", "/api/v1/secrets/", "list", "", "v1", "", "secrets", "", ""),
    ("GET", "/api/v1/namespaces/a/secrets", "list", "", "v1", "a", "secrets", "", ""),
    ("GET", "/api/v1/namespaces/a/secrets/s", "get", "", "v1", "a", "secrets", "s", ""),
    ("HEAD", "/api/v1/namespaces/a/secrets/s", "get", "", "v1", "a", "secrets", "s", ""),
    ("HEAD", "/api/v1/namespaces/a/secrets", "list", "", "v1", "a", "secrets", "", ""),
    ("GET", "/api/v1/namespaces/a/secrets?watch=true", "watch", "", "v1", "a", "secrets", "", ""),
    ("GET", "/api/v1/namespaces/a/secrets?watch", "watch", "", "v1", "a", "secrets", "", ""),
    ("GET", "/api/v1/namespaces/a/secrets?watch=FALSE", "list", "", "v1", "a", "secrets", "", ""),
    ("GET", "/api/v1/namespaces/a/secrets/s?watch=1", "watch", "", "v1", "a", "secrets", "s", ""),
    ("POST", "/api/v1/namespaces/a/secrets", "create", "", "v1", "a", "secrets", "", ""),
    ("PUT", "/api/v1/namespaces/a/pods/p/status", "update", "", "v1", "a", "pods", "p", "status"),
    ("PATCH", "/apis/apps/v1/namespaces/a/deployments/d", "patch", "apps", "v1", "a", "deployments", "d", ""),
    ("DELETE", "/apis/apps/v1/namespaces/a/deployments/d", "delete", "apps", "v1", "a", "deployments", "d", ""),
    ("DELETE", "/apis/apps/v1/namespaces/a/deployments", "deletecollection", "apps", "v1", "a", "deployments", "", ""),
    ("GET", "/api/v1/namespaces", "list", "", "v1", "", "namespaces", "", ""),
    ("GET", "/api/v1/namespaces/a", "get", "", "v1", "a", "namespaces", "a", ""),
    ("PUT", "/api/v1/namespaces/a/finalize", "update", "", "v1", "a", "namespaces", "a", "finalize"),
    ("PUT", "/api/v1/namespaces/a/status", "update", "", "v1", "a", "namespaces", "a", "status"),
    ("GET", "/api/v1/nodes/n", "get", "", "v1", "", "nodes", "n", ""),
    ("GET", "/api/v1/namespaces/%61/secrets/s%3Ax", "get", "", "v1", "a", "secrets", "s:x", ""),
    ("GET", "/api/v1/namespaces/%252e/secrets", "list", "", "v1", "%2e", "secrets", "", ""),
    # Nothing is resolved: these are names, and no object can have them.
    ("GET", "/api/v1/../../healthz", "get", "", "v1", "", "..", "..", "healthz"),
    ("GET", "/api/v1/namespaces/a/secrets/..", "get", "", "v1", "a", "secrets", "..", ""),
    ("GET", "/api/v1/namespaces/a/secrets/%2e%2e", "get", "", "v1", "a", "secrets", "..", ""),
    ("GET", "/api/v1/namespaces/a/secrets/s%00", "get", "", "v1", "a", "secrets", "s\0", ""),
    ("GET", "/api//secrets", "list", "", "", "", "secrets", "", ""),
    ("GET", "/api/v1//secrets", "get", "", "v1", "", "", "secrets", ""),
    ("GET", "/api/v1/namespaces//secrets", "list", "", "v1", "", "secrets", "", ""),
]


@pytest.mark.parametrize("row", RESOURCES, ids=[f"{row[0]} {row[1]}" for row in RESOURCES])
def test_a_path_of_a_resource_is_taken_apart(row: tuple[str, ...]) -> None:
    method, target, *wanted = row
    info = request.parse(method, target)
    found = [info.verb, info.group, info.version, info.namespace, info.plural, info.name, info.subresource]
    assert info.is_resource
    assert found == wanted
    assert info.path == target.partition("?")[0]


@pytest.mark.parametrize(
    ("method", "target", "verb"),
    [
        ("GET", "/", "get"),
        ("GET", "", "get"),
        ("GET", "*", "get"),
        ("HEAD", "/healthz", "head"),
        ("POST", "/healthz", "post"),
        ("PUT", "/healthz", "put"),
        ("PATCH", "/healthz", "patch"),
        ("DELETE", "/healthz", "delete"),
        ("GET", "/api", "get"),
        ("GET", "/api/v1", "get"),
        ("GET", "/apis/apps", "get"),
        ("GET", "/apis/apps/v1", "get"),
        ("GET", "/apis/apps/v1/", "get"),
        ("GET", "//api/v1/secrets", "get"),
        ("GET", "/API/v1/secrets", "get"),
        ("GET", "/healthz/../api/v1/secrets", "get"),
    ],
)
def test_other_paths(method: str, target: str, verb: str) -> None:
    info = request.parse(method, target)
    assert not info.is_resource
    assert (info.verb, info.path, info.plural) == (verb, target, "")


@pytest.mark.parametrize(
    ("target", "code", "message"),
    [
        ("/api/v1/namespaces/a%2Fb", 400, "a path segment may not contain \"/\": 'a%2Fb'"),
        ("/api/v1/namespaces/a%2fsecrets/s", 400, "a path segment may not contain"),
        ("/healthz%2fx", 400, "a path segment may not contain"),
        ("/api/v1/namespaces/%ff", 400, "the path is not valid UTF-8 once its escapes are decoded"),
        ("/api/v1/namespaces/%c0%af", 400, "not valid UTF-8"),
        ("/api/v1/namespaces/%ed%a0%80", 400, "not valid UTF-8"),
        ("/" + "a" * 4096, 400, "the path has 4097 characters, at most 4096 are allowed"),
        ("/api/v1/namespaces/a/secrets/s/status/more", 404, "could not find the requested resource"),
        ("/api/v1/nodes/n/status/more", 404, "could not find the requested resource"),
        ("/api/v1/nodes?labelSelector=%ff", 400, "the query cannot be read"),
        ("/api/v1/nodes?" + "&".join(f"a{n}=1" for n in range(101)), 400, "the query cannot be read"),
    ],
)
def test_a_path_or_query_that_cannot_be_read_is_refused(target: str, code: int, message: str) -> None:
    with pytest.raises(status.StatusError) as caught:
        request.parse("GET", target)
    assert caught.value.code == code
    assert message in caught.value.message


@pytest.mark.parametrize("method", ["LIST", "WATCH", "DELETECOLLECTION", "CREATE", "UPDATE", "OPTIONS", "get", "", "*"])
@pytest.mark.parametrize("target", ["/api/v1/nodes/n", "/api/v1/nodes", "/api/v1/nodes?watch=1", "/healthz", "*", ""])
def test_a_method_is_never_taken_for_a_verb(method: str, target: str) -> None:
    with pytest.raises(status.StatusError, match="does not allow this method") as caught:
        request.parse(method, target)
    assert (caught.value.code, caught.value.reason) == (405, "MethodNotAllowed")


class TestQuery:
    def test_the_query_is_decoded(self) -> None:
        info = request.parse("GET", "/api/v1/nodes?labelSelector=a%3Db%2Cc&x=1+2&empty=&word")
        assert info.query == {"labelSelector": "a=b,c", "x": "1 2", "empty": "", "word": ""}

    def test_the_first_of_repeated_values_counts(self) -> None:
        assert request.parse("GET", "/api/v1/nodes?limit=1&limit=2").query == {"limit": "1"}

    def test_a_second_question_mark_is_part_of_it(self) -> None:
        assert request.parse("GET", "/healthz?a=?b").query == {"a": "?b"}

    def test_one_request_does_not_see_the_query_of_another(self) -> None:
        for target in ("/healthz", "/healthz?b=2"):
            with pytest.raises(TypeError):
                request.parse("GET", target).query["a"] = "1"  # type: ignore[index]

    def test_long_targets_are_not_remembered(self) -> None:
        before = request._remembered.cache_info().currsize
        request.parse("GET", "/healthz?" + "a" * 300)
        assert request._remembered.cache_info().currsize == before

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("", False),
            ("f=true", True),
            ("f=", True),
            ("f", True),
            ("f=1", True),
            ("f=yes", True),
            ("f=banana", True),
            ("f=false", False),
            ("f=False", False),
            ("f=0", False),
            ("f=f", False),
        ],
    )
    def test_a_flag_is_set_when_present_and_not_false(self, query: str, expected: bool) -> None:
        assert request.parse("GET", "/healthz?" + query).flag("f") is expected
