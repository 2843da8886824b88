# SPDX-License-Identifier: Apache-2.0
"""Refusals by reason, from Envoy's own figures."""

from handfast.rules.envoy import refusals

FIGURES = """\
# TYPE envoy_tcp_downstream_cx_no_route counter
envoy_tcp_downstream_cx_no_route{envoy_tcp_prefix="in_refused_own_name"} 3
envoy_tcp_downstream_cx_no_route{envoy_tcp_prefix="in_tcp"} 7
envoy_tcp_downstream_cx_no_route{envoy_tcp_prefix="in_refused_tcp"} 1
envoy_tcp_downstream_cx_total{envoy_tcp_prefix="in_refused_tcp"} 1
envoy_listener_ssl_fail_verify_error{envoy_listener_address="127.0.0.1_80"} 2
envoy_listener_ssl_fail_verify_error{envoy_listener_address="127.0.0.1_81"} 3
envoy_cluster_ssl_fail_verify_san{envoy_cluster_name="http/web.ns1"} 4
envoy_http_rbac_policy_denied{envoy_rbac_policy_name="identity-revoked",envoy_http_conn_manager_prefix="in_tls"} 5
envoy_http_rbac_policy_shadow_denied{envoy_rbac_policy_name="not-allowed-by-policy"} 6
envoy_http_rbac_policy_denied{} 8
envoy_http_rq_direct_response{envoy_http_conn_manager_prefix="out"} 10
envoy_http_rq_direct_response{envoy_http_conn_manager_prefix="in_http"} 11
envoy_server_uptime{} 9
envoy_cluster_ssl_fail_verify_error{} nonsense
"""


def test_refusals_are_added_up_by_reason_and_the_rest_is_left_out():
    assert refusals.refused(FIGURES) == {
        "no-certificate": 3,
        "tcp-without-identity": 1,
        "client-certificate": 5,
        "server-name": 4,
        "identity-revoked": 5,
        "destination": 10,
    }


def test_what_a_policy_in_audit_would_refuse_is_told_apart():
    assert refusals.would_be_refused(FIGURES) == {"not-allowed-by-policy": 6}
    assert refusals.would_be_refused("") == {}
