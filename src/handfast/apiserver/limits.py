# SPDX-License-Identifier: Apache-2.0
"""The numbers that bound a request: sizes, deadlines, rates and budgets in bytes, beside those of connections.

`flows` and `bodies` keep to them. Nothing is counted here.
"""

from __future__ import annotations

from dataclasses import dataclass

from handfast.serving import limits


@dataclass(frozen=True, slots=True)
class Limits(limits.Limits):
    """The defaults are written down in docs/reference/limits.md."""

    body_seconds: float = 30.0
    # A write altogether, with everyone it has to ask: longer than the longest deadline of a webhook.
    request_seconds: float = 60.0
    body_bytes: int = 3 << 20
    # Bodies on their way that did not come with their head, of one user and of all.
    bodies_per_user_bytes: int = 32 << 20
    bodies_bytes: int = 256 << 20
    anonymous_per_second: float = 50.0
    anonymous_burst: int = 200
    user_per_second: float = 400.0
    user_burst: int = 1600
    service_account_per_second: float = 200.0
    service_account_burst: int = 800
    mesh_identity_per_second: float = 2000.0
    mesh_identity_burst: int = 20_000
    node_per_second: float = 120.0
    node_burst: int = 480
    renewal_per_second: float = 5.0
    renewal_burst: int = 20
    join_per_second: float = 50.0
    join_burst: int = 200
    joins_per_second: float = 300.0
    joins_burst: int = 3000
    # In bytes: what is sent or written, and what is added to the store.
    node_sent_bytes_per_second: float = 2 << 20
    node_sent_bytes_burst: int = 32 << 20
    node_added_bytes_per_second: float = 16 << 10
    node_added_bytes_burst: int = 16 << 20
    renewal_sent_bytes_per_second: float = 8 << 10
    renewal_sent_bytes_burst: int = 512 << 10
    renewal_added_bytes_per_second: float = 256
    renewal_added_bytes_burst: int = 512 << 10
    join_sent_bytes_per_second: float = 128 << 10
    join_sent_bytes_burst: int = 8 << 20
    joins_sent_bytes_per_second: float = 1 << 20
    joins_sent_bytes_burst: int = 64 << 20
    token_added_bytes_per_second: float = 512
    token_added_bytes_burst: int = 32 << 20
    joins_added_bytes_per_second: float = 1 << 10
    joins_added_bytes_burst: int = 128 << 20
    # A watcher further behind than this is dropped, never waited for.
    watch_buffer_bytes: int = 4 << 20
