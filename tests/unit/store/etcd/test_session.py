# SPDX-License-Identifier: Apache-2.0
"""What the errors of a write mean: only etcd's own words, said before it proposes a write, tell that nothing was changed."""

from __future__ import annotations

import pytest

from handfast import errors
from handfast.store import protocol
from handfast.store.etcd import place as places
from handfast.store.etcd import session as sessions
from handfast.wire import etcd_access, etcd_client
from handfast.wire import etcd_messages as messages
from tests.world import etcds

OPEN = etcd_access.Access()


def _fail(reason: str, why: str) -> None:
    raise AssertionError(f"{reason}: {why}")


def _session(client: etcd_client.Client, place: places.Place) -> sessions.Session:
    return sessions.Session(client, place, _fail)


@pytest.mark.parametrize(
    "code, text, means",
    [
        ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", protocol.StoreFull),
        ("RESOURCE_EXHAUSTED", "etcdserver: too many requests", protocol.StoreUnavailable),
        ("RESOURCE_EXHAUSTED", "grpc: received message larger than max (9 vs. 8)", protocol.TooLarge),
        ("INVALID_ARGUMENT", "etcdserver: request is too large", protocol.TooLarge),
        ("INVALID_ARGUMENT", "etcdserver: duplicate key given in txn request", protocol.StoreUnavailable),
        ("PERMISSION_DENIED", "etcdserver: permission denied", protocol.StoreUnavailable),
        ("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted", sessions.OutOfRange),
        # What gRPC says of an answer, or a proxy on the way: the write may be done.
        ("RESOURCE_EXHAUSTED", "CLIENT: Received message larger than max (9 vs. 8)", protocol.StoreUncertain),
        ("RESOURCE_EXHAUSTED", "grpc: trying to send message larger than max (9 vs. 8)", protocol.StoreUncertain),
        ("RESOURCE_EXHAUSTED", "retry budget exhausted", protocol.StoreUncertain),
        ("RESOURCE_EXHAUSTED", "Bandwidth exhausted or memory limit exceeded", protocol.StoreUncertain),
        ("INVALID_ARGUMENT", "cannot be read", protocol.StoreUncertain),
        ("OUT_OF_RANGE", "compacted", protocol.StoreUncertain),
        ("UNAVAILABLE", "etcdserver: request timed out", protocol.StoreUncertain),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", protocol.StoreUncertain),
    ],
)
async def test_only_etcds_own_word_tells_that_nothing_was_changed(code: str, text: str, means: type) -> None:
    etcd = etcds.shared()
    client = etcd_client.Client([etcd.address], OPEN)
    assert type(_session(client, etcd.place())._refused(0, etcd_client.Failed("e", code, text))) is means
    await client.close()


async def test_a_write_whose_answer_is_too_large_is_uncertain(monkeypatch: pytest.MonkeyPatch) -> None:
    """etcd has done it by then."""
    options = tuple(option for option in etcd_client._OPTIONS if option[0] != "grpc.max_receive_message_length")
    monkeypatch.setattr(etcd_client, "_OPTIONS", (*options, ("grpc.max_receive_message_length", 4096)))
    etcd = etcds.shared()
    place = etcd.place()
    client = etcd_client.Client([etcd.address], OPEN)
    session = _session(client, place)
    large, small = place.key("large"), place.key("small")
    await session.write(messages.PutRequest(key=large, value=bytes(8192)))
    put = messages.RequestOp(request_put=messages.PutRequest(key=small, value=b"done"))
    look = messages.RequestOp(request_range=sessions.range_of(large))
    with pytest.raises(protocol.StoreUncertain, match="larger than max"):
        await session.write(messages.TxnRequest(success=[put, look]))
    assert (await session.read(sessions.range_of(small))).kvs[0].value == b"done"
    # A read that is too large changes nothing, and is asked for in smaller pieces.
    with pytest.raises(protocol.TooLarge):
        await session.read(sessions.range_of(large))
    await client.close()


async def test_a_login_that_is_not_answered_leaves_a_write_unsent(monkeypatch: pytest.MonkeyPatch) -> None:
    etcd = etcds.shared()
    client = etcd_client.Client([etcd.address], OPEN)

    async def lost(_index: int, _seconds: float) -> str | None:
        raise etcd_client.NotSent("e", "DEADLINE_EXCEEDED", "Deadline Exceeded")

    session = _session(client, etcd.place())
    monkeypatch.setattr(client, "_authenticated", lost)
    with pytest.raises(errors.Unavailable) as refusal:
        await session.write(messages.PutRequest(key=b"x", value=b""))
    assert isinstance(refusal.value, protocol.StoreUnavailable)
    await client.close()
