# SPDX-License-Identifier: Apache-2.0
"""What is said of kinds and fields is said of such as there are, in short sentences."""

from __future__ import annotations

import pytest

from handfast.api.openapi import descriptions
from handfast.api.schema import schema

LONGEST = 140


@pytest.mark.parametrize("message", descriptions.messages())
def test_whatever_is_described_is_in_the_schema(message):
    fields = schema.message(message).fields
    for field, text in descriptions.messages()[message].items():
        assert not field or field in fields
        assert text.endswith(".")
        assert len(text) <= LONGEST


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("core.v1.Secret", "type"),
        ("core.v1.ConfigMap", "data"),
        ("core.v1.Node", "status"),
        ("core.v1.ServiceAccount", ""),
        ("coordination.v1.LeaseSpec", "renewTime"),
        ("certificates.v1.CertificateSigningRequestSpec", "signerName"),
        ("rbac.v1.PolicyRule", "verbs"),
        ("authentication.v1.TokenRequestSpec", "audiences"),
        ("admissionregistration.v1.MutatingWebhook", "failurePolicy"),
        ("apiextensions.v1.CustomResourceDefinitionSpec", "scope"),
    ],
)
def test_what_this_system_is_about_is_described(message, field):
    assert descriptions.of(message, field)


def test_what_nobody_described_says_nothing():
    assert not descriptions.of("core.v1.PodSpec", "hostIPC")
    assert not descriptions.of("storage.v1.CSIDriver")


def test_what_stock_tests_look_for_is_there():
    assert descriptions.shared("apiVersion").startswith("APIVersion defines")
    assert descriptions.shared("metadata").startswith("Standard object's metadata")
    created = descriptions.of("meta.v1.ObjectMeta", "creationTimestamp")
    assert created.startswith("CreationTimestamp is a timestamp")
