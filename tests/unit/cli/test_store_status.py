# SPDX-License-Identifier: Apache-2.0
"""What `handfast store status` makes of Leases that no server wrote."""

from __future__ import annotations

import datetime
import pathlib

import msgspec
import pytest

from handfast.apiserver import announcement
from handfast.apiserver.state import envelope
from handfast.cli import store_status
from handfast.store import transfer
from handfast.store.sqlite import engine

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize("said", ["abc", "-1", "", "²", "9" * 5000])
async def test_a_number_that_is_none_in_a_lease_is_no_traceback(tmp_path: pathlib.Path, said: str) -> None:
    numbers = (announcement.APPLIED, announcement.LAG, announcement.UNCERTAIN)
    annotations_ = dict.fromkeys(numbers, said) | {announcement.FORMS: "1-1"}
    metadata = {"name": "apiserver-x", "labels": {announcement.LABEL: ""}, "annotations": annotations_}
    spec = {"leaseDurationSeconds": 1, "renewTime": "2030-01-01T00:00:00.000000Z"}
    key = f"{announcement.KEYS}x"
    store = await engine.open_store(str(tmp_path / "store.db"))
    document = msgspec.json.encode({"metadata": metadata, "spec": spec})
    await store.create(key, envelope.Envelopes().wrap(key, "coordination.k8s.io/v1", document))
    source = await transfer.StoreSource.of(store, "sqlite", "here")
    (server,) = [each async for each in store_status._servers(source, NOW)]
    assert (server["appliedVersion"], server["lag"], server["uncertainWrites"]) == (0, 0, 0)
    await store.close()
