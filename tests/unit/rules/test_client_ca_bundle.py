# SPDX-License-Identifier: Apache-2.0
"""What the ConfigMap of client CAs may hold. Who may change it is tested with its admission plugin."""

from __future__ import annotations

import pytest

from handfast import errors
from handfast.rules import client_ca_bundle
from tests.unit.pki import making

CA = making.ca("ca")


def test_the_bundle_is_every_certificate_of_its_key():
    document = {"data": {client_ca_bundle.KEY: CA.pem.decode(), "other": "no certificate"}}
    assert client_ca_bundle.read(document).ders == (CA.der,)


@pytest.mark.parametrize("document", [{}, {"data": {}}, {"data": {client_ca_bundle.KEY: 7}}, {"data": None}])
def test_a_document_without_the_key_is_refused(document):
    with pytest.raises(errors.Refused) as caught:
        client_ca_bundle.read(document)
    assert caught.value.reason == "NoBundle"


def test_broken_pem_is_refused():
    with pytest.raises(errors.Refused):
        client_ca_bundle.read({"data": {client_ca_bundle.KEY: "-----BEGIN CERTIFICATE-----\nxx"}})
