# SPDX-License-Identifier: Apache-2.0
"""The members of a real etcd, one of which is not there."""

from __future__ import annotations

import socket

from handfast.runtime import addresses
from handfast.store import protocol
from handfast.store.etcd import engine, members
from handfast.store.etcd import place as places
from handfast.wire import etcd_access
from tests.world import etcds


async def test_a_member_that_is_away_is_shown_as_away() -> None:
    real = etcds.shared().place()
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        away = addresses.Address(*nobody.getsockname()[:2])
    place = places.Place((*real.endpoints, away), real.prefix)
    store = await engine.open_store(place, etcd_access.Access())
    try:
        stats = await store.stats()
        here, gone = stats.members
        assert (here.address, here.answers, here.leads) == (str(real.endpoints[0]), True, True)
        assert here.version.startswith("3.")
        assert int(here.name, 16)
        assert (gone.name, gone.address, gone.answers, gone.leads, gone.version) == ("", str(away), False, False, "")
        assert stats.size_bytes
    finally:
        await store.close()


def test_who_answers_is_told_with_whether_they_have_a_leader() -> None:
    away = protocol.Member("", "a:1", answers=False, leads=False, version="")
    alone = protocol.Member("1", "b:1", answers=True, leads=False, version="3.4.23")
    follower = protocol.Member("2", "c:1", answers=True, leads=False, version="3.4.23", has_leader=True)
    assert members.in_words([away, away]) == "none of 2 endpoints answers"
    assert members.in_words([away, alone, away]) == "1 of 3 endpoints answers, and it has no leader"
    assert members.in_words([alone, follower, away]) == "2 of 3 endpoints answer, and they have a leader"
