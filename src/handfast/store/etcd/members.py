# SPDX-License-Identifier: Apache-2.0
"""The members of an etcd, as far as the URL names them: each is asked for itself, so that one that is away is shown as away.

It needs no quorum, and decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from handfast.runtime import addresses
from handfast.store import protocol
from handfast.store.etcd import session as sessions
from handfast.wire import etcd_client
from handfast.wire import etcd_messages as messages


async def ask(
    client: etcd_client.Client, endpoints: Sequence[addresses.Address]
) -> tuple[int | None, Sequence[protocol.Member]]:
    """What the largest database occupies, None if nobody answers; and the members."""
    found = await asyncio.gather(*(_ask(client, index, str(each)) for index, each in enumerate(endpoints)))
    return max((size for size, _ in found if size is not None), default=None), [member for _, member in found]


async def _ask(client: etcd_client.Client, index: int, address: str) -> tuple[int | None, protocol.Member]:
    try:
        status = await client.call(index, messages.StatusRequest(), sessions.READ_SECONDS)
    except etcd_client.Failed:
        return None, protocol.Member("", address, answers=False, leads=False, version="")
    name = status.header.member_id
    leader = status.leader
    member = protocol.Member(
        f"{name:x}", address, answers=True, leads=name == leader, version=status.version, has_leader=bool(leader)
    )
    return int(status.dbSize), member


def in_words(members: Sequence[protocol.Member]) -> str:
    """Who of them answers, and whether they have a leader."""
    answering = [each for each in members if each.answers]
    if not answering:
        return f"none of {len(members)} endpoints answers"
    # One that lost its majority forgets its leader after an election timeout.
    leading = "it has" if len(answering) == 1 else "they have"
    verb = "answers" if len(answering) == 1 else "answer"
    lead = "a leader" if any(each.has_leader for each in answering) else "no leader"
    return f"{len(answering)} of {len(members)} endpoints {verb}, and {leading} {lead}"


async def explained(
    client: etcd_client.Client, endpoints: Sequence[addresses.Address], error: protocol.StoreUnavailable
) -> protocol.StoreUnavailable:
    """The error of a store that could not be opened, with who of the members answers."""
    if error.reason != protocol.StoreUnavailable.reason:
        return error
    _, found = await ask(client, endpoints)
    return protocol.StoreUnavailable(f"{error.message}; {in_words(found)}", reason=error.reason, hint=error.hint)
