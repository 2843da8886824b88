# SPDX-License-Identifier: Apache-2.0
"""What the ConfigMap of client CAs may hold. Who may change it is tested with its admission plugin."""

from __future__ import annotations

import pytest

from handfast import errors
from handfast.rules import client_ca_bundle
from tests.unit.pki import making

CA, OTHER = making.ca("ca"), making.ca("other")


def test_the_bundle_is_every_certificate_of_its_key():
    document = {"data": {client_ca_bundle.KEY: (CA.pem + OTHER.pem).decode(), "other": "no certificate"}}
    assert set(client_ca_bundle.read(document).ders) == {CA.der, OTHER.der}


@pytest.mark.parametrize("document", [{}, {"data": {}}, {"data": {client_ca_bundle.KEY: 7}}, {"data": None}])
def test_a_document_without_the_key_is_refused(document):
    with pytest.raises(errors.Refused) as caught:
        client_ca_bundle.read(document)
    assert caught.value.reason == "NoBundle"


def test_broken_pem_is_refused():
    with pytest.raises(errors.Refused, match="no END line") as caught:
        client_ca_bundle.read({"data": {client_ca_bundle.KEY: "-----BEGIN CERTIFICATE-----\nxx"}})
    assert caught.value.reason == "MalformedPEM"


class TestRecord:
    FINGERPRINT = "ab" * 32

    def document(self, text):
        return {"data": {client_ca_bundle.KEY: CA.pem.decode(), client_ca_bundle.SOURCES_KEY: text}}

    def test_without_one_nothing_was_given(self):
        assert client_ca_bundle.record({"data": {}}) == client_ca_bundle.Record()
        assert client_ca_bundle.record(self.document("{}")).certificates == {}

    def test_it_is_read_as_it_is_written(self):
        condition = client_ca_bundle.Condition("SourcesReadable", "True", "AsExpected", "", "2026-01-01T00:00:00Z")
        record = client_ca_bundle.Record({self.FINGERPRINT: ("openshift-config/a", "b/c")}, (condition,))
        assert client_ca_bundle.record(self.document(record.text())) == record
        assert '"lastTransitionTime":"2026-01-01T00:00:00Z"' in record.text()
        left = record.without(self.FINGERPRINT, "another")
        assert (left.certificates, left.conditions) == ({}, (condition,))

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "[]",
            '{"more":' + "[" * 100_000,
            "broken",
            '{"certificates":{"x":["a/b"]}}',
            '{"certificates":{"' + FINGERPRINT + '":[]}}',
            '{"certificates":{"' + FINGERPRINT + '":["a"]}}',
            '{"certificates":{"' + FINGERPRINT + '":"a/b"}}',
            '{"conditions":[{"type":"x"}]}',
            "\ud800",
        ],
    )
    def test_what_cannot_be_read_is_refused(self, text):
        with pytest.raises(errors.Refused) as caught:
            client_ca_bundle.record(self.document(text))
        assert caught.value.reason == "UnreadableRecord"
