# SPDX-License-Identifier: Apache-2.0
"""Which versions of etcd are used, and whose word on progress is believed."""

from __future__ import annotations

import pytest

from handfast.store import protocol
from handfast.store.etcd import live


@pytest.mark.parametrize(
    "text, believed",
    [
        ("3.4.23", False),
        ("3.4.30", False),
        ("3.4.31", True),
        ("3.5.1", False),
        ("3.5.12", False),
        ("3.5.13", True),
        ("3.6.0", True),
        ("3.10.0-rc.1", True),
        ("4.0.0", True),
        ("", False),
    ],
)
def test_progress_is_believed_from_versions_that_do_not_send_it_early(text: str, believed: bool) -> None:
    assert live.is_progress_believed(text) is believed


@pytest.mark.parametrize("text", ["3.3.27", "2.3.8", "", "x"])
def test_an_older_etcd_is_named_with_its_endpoint(text: str) -> None:
    live.require_new_enough("3.4.0", "h:1")
    with pytest.raises(protocol.StoreCorrupt, match=r"etcd at h:1: its version is .*; 3\.4 is the oldest") as refusal:
        live.require_new_enough(text, "h:1")
    assert refusal.value.reason == "EtcdTooOld"
