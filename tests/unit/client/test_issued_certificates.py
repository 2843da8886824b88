# SPDX-License-Identifier: Apache-2.0
"""The ledger, read whole."""

from __future__ import annotations

import pytest

from handfast import errors
from handfast.api import status
from handfast.client import issued_certificates
from handfast.rules.ledger import entries, segments
from tests.unit.controllers.fake_api import FakeClient, failing
from tests.unit.rules import ledger_cases


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


async def test_entries_are_read_whole_or_of_one_signer(client):
    assert await issued_certificates.entries(client) == []
    entry = ledger_cases.entry()
    segment = segments.extended(segments.following(None), [entries.encode(entry)])
    client.put("issuancelogs", segment.name, spec=segments.spec_of(segment))
    assert await issued_certificates.entries(client) == [entry]
    assert await issued_certificates.entries(client, entry.signer) == [entry]
    assert await issued_certificates.entries(client, "another") == []


async def test_a_ledger_that_cannot_be_read_is_no_empty_one(client):
    spec = {"sequence": 1, "previous": "0" * 64, "entries": ["x 1 {}"], "sealed": False}
    client.put("issuancelogs", "1", spec=spec)
    with pytest.raises(errors.Refused) as caught:
        await issued_certificates.entries(client)
    assert caught.value.reason == "UnreadableLedger"


@pytest.mark.parametrize("reason", ["NotFound", "Forbidden"])
async def test_an_api_without_a_ledger(client, reason):
    client.before = failing(status.StatusError(reason, "no"))
    if reason == "NotFound":
        assert await issued_certificates.entries(client) is None
    else:
        with pytest.raises(status.StatusError) as caught:
            await issued_certificates.entries(client)
        assert caught.value.reason == reason
