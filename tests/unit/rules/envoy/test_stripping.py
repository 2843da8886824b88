# SPDX-License-Identifier: Apache-2.0
"""Headers of the mesh that are removed."""

import re

import pytest

from handfast.rules.envoy import stripping


def removed(direction):
    mutations = stripping.requests_and_answers()["typed_config"]["mutations"]
    (row,) = mutations[direction]
    return row["remove_on_match"]["key_matcher"]


@pytest.mark.parametrize("part", ["request_mutations", "request_trailers_mutations", "response_trailers_mutations"])
def test_all_of_them_go_from_requests_and_from_trailers(part):
    pattern = removed(part)["safe_regex"]["regex"]
    assert stripping.requests()["typed_config"]["mutations"][part]
    # To CGI, and what came after it, both are HTTP_L5D_CLIENT_ID.
    for name in ("l5d-client-id", "l5d_client_id", "L5D-Client_Id", "l5d-", "l5d_"):
        assert re.fullmatch(pattern, name), name
    for name in ("l5d", "l5dx", "x-l5d-a", "host"):
        assert not re.fullmatch(pattern, name), name
    assert "response_mutations" not in stripping.requests()["typed_config"]["mutations"]


@pytest.mark.parametrize(
    "name",
    [
        "l5d-",
        "l5d-x",
        "l5d-client-id",
        "l5d-server",
        "l5d-server-",
        "l5d-server-ids",
        "l5d-server-i",
        "l5d-proxy-error-2",
        "l5d-proxy-erroR",
        "l5d-s",
        "l5d-orig-proto",
    ],
)
def test_from_answers_go_all_but_two(name):
    assert re.fullmatch(removed("response_mutations")["safe_regex"]["regex"], name)


@pytest.mark.parametrize("name", ["l5d-server-id", "l5d-proxy-error", "l5d", "x-l5d-a", "server", ""])
def test_two_headers_of_an_answer_stay(name):
    assert not re.fullmatch(removed("response_mutations")["safe_regex"]["regex"], name)
