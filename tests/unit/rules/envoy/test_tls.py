# SPDX-License-Identifier: Apache-2.0
"""Secrets are as they were tried; contexts are compared with listeners and clusters."""

import re

import pytest

from handfast import errors
from handfast.rules.envoy import tls
from tests.unit.rules.envoy import tried


def test_secrets_are_as_they_were_tried():
    assert tls.anchors(b"<pem>") == tried.tried("sds-anchors")
    assert tls.identity(b"<chain pem>", b"<pkcs8 pem>") == tried.tried("sds-identity")


def test_nobody_resumes_a_session():
    context = tls.downstream()["typed_config"]
    assert context["disable_stateless_session_resumption"]
    assert context["disable_stateful_session_resumption"]
    assert tls.upstream(tried.IDENTITY, certified=True)["typed_config"]["max_session_keys"] == 0


def pattern_of(name):
    context = tls.upstream(name, certified=False)["typed_config"]["common_tls_context"]
    (only,) = context["combined_validation_context"]["default_validation_context"]["match_typed_subject_alt_names"]
    assert only["san_type"] == "DNS"
    return re.compile(only["matcher"]["safe_regex"]["regex"])


def test_a_server_proves_exactly_one_name():
    pattern = pattern_of(tried.IDENTITY)
    assert pattern.fullmatch(tried.IDENTITY)
    for wrong in (
        "*.ns1.sa.linkerd-identity.linkerd.cluster.local",
        f"a.{tried.IDENTITY}",
        tried.IDENTITY.replace(".", "x"),
    ):
        assert not pattern.fullmatch(wrong)
    assert not pattern_of("").fullmatch("")


@pytest.mark.parametrize("name", ["web|other", "*.ns1", "a b", "Web.ns1", "a" * 254])
def test_what_is_no_name_gets_into_no_pattern(name):
    with pytest.raises(errors.Misuse):
        tls.upstream(name, certified=False)
