# SPDX-License-Identifier: Apache-2.0
"""How the figures of a store are written down, known or not."""

from __future__ import annotations

import prometheus_client
from prometheus_client import core

from handfast.telemetry import store_figures


def text(figures: store_figures.StoreFigures) -> str:
    registry = core.CollectorRegistry()
    registry.register(store_figures.StoreMetrics(lambda: figures))
    return prometheus_client.generate_latest(registry).decode()


def test_before_the_store_was_asked_nothing_is_a_number() -> None:
    lines = [line for line in text(store_figures.StoreFigures()).splitlines() if not line.startswith("#")]
    assert "handfast_store_backup_timestamp_seconds 0.0" in lines
    assert sum(line.endswith(" NaN") for line in lines) == len(lines) - 1 == 6


def test_members_and_keys_have_a_line_each() -> None:
    members = (
        store_figures.StoreMember("h1:2379", answers=True, leads=True),
        store_figures.StoreMember("h2:2379", answers=False, leads=False),
    )
    epochs = (store_figures.StoreEpoch(7, "restored", 1.0), store_figures.StoreEpoch(9, "by a server"))
    page = text(
        store_figures.StoreFigures(engine="etcd", identity="id", sealed={"one": 3}, members=members, epochs=epochs)
    )
    for line in (
        'handfast_store_info{engine="etcd",identity="id"} 1.0',
        'handfast_store_epoch_timestamp_seconds{offset="7",why="restored"} 1.0',
        'handfast_store_epoch_timestamp_seconds{offset="9",why="by a server"} 0.0',
        'handfast_store_sealed_values{key="one"} 3.0',
        'handfast_store_member_up{address="h1:2379"} 1.0',
        'handfast_store_member_up{address="h2:2379"} 0.0',
        'handfast_store_member_leads{address="h1:2379"} 1.0',
        'handfast_store_member_leads{address="h2:2379"} 0.0',
    ):
        assert f"{line}\n" in page
