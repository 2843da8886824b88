# SPDX-License-Identifier: Apache-2.0
"""What Envoy tells its agent of who calls. How it works is in tests/scenarios/test_envoy_edges.py."""

from __future__ import annotations

from handfast.rules.envoy import bootstrap, observing
from handfast.wire import envoy_messages


def test_requests_are_told_where_the_script_has_noted_it():
    log = observing.requests()
    matcher = log["filter"]["metadata_filter"]["matcher"]
    assert (matcher["filter"], matcher["path"]) == (observing.NAMESPACE, [{"key": observing.COUNT}])
    # One that has no note is not told.
    assert log["filter"]["metadata_filter"]["match_if_key_not_found"] is False
    assert f'"{observing.NAMESPACE}", "{observing.COUNT}"' in observing.SCRIPT


def test_both_go_to_the_agent_and_are_what_envoy_takes():
    connections = observing.connections(observing.NOT_HTTP)
    for log in (observing.requests(), *connections["access_log"]):
        common = log["typed_config"]["common_config"]
        assert common["grpc_service"] == {"envoy_grpc": {"cluster_name": bootstrap.AGENT}}
        assert envoy_messages.packed("type.googleapis.com/envoy.config.accesslog.v3.AccessLog", log)
    assert common["custom_tags"] == [{"tag": observing.UNSECURED, "literal": {"value": "not-http"}}]


def test_the_script_of_plaintext_sees_and_judges_nothing():
    assert observing.PLAINTEXT_SCRIPT.startswith(observing.SCRIPT)
    assert observing.PLAINTEXT_SCRIPT.endswith('function envoy_on_request(handle)\n  pcall(observe, handle, "")\nend\n')
