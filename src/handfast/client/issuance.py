# SPDX-License-Identifier: Apache-2.0
"""One certificate: a key from the store, a certificate for it from whoever issues, and the pair back into the store.

`obtain` knows whom to ask, and how. The caller (`keeping`) decides when to ask, and what follows a failure.

1. The key is in the store before a certificate is asked for. The next attempt, or the next process, goes on with it.
2. The key stays until its certificate arrives, unless the answer says that it is spent (`Outlook`).
3. What TLS would not take is not stored, and its key is spent.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from handfast import errors
from handfast.pki import keys, pairs
from handfast.runtime import tls


class Store(Protocol):
    """Where a pair lies, and beside it the key of a request that is under way."""

    def load(self) -> pairs.Pair | None:
        """The best pair there is, also one that has expired."""

    def save(self, pair: pairs.Pair) -> object:
        """Store a pair and make it the one that `load` returns; its key stops being the pending one."""

    def pending_key(self) -> keys.PrivateKey:
        """The key of the request under way, or a new one, as durable as the store is."""

    def has_pending_key(self) -> bool:
        """Whether a request is under way, or was when the last process ended."""

    def discard_pending(self) -> None:
        """Forget the key of a request that will never get its certificate."""

    def remove_leftovers(self) -> None:
        """Finish or delete what a crash left half done; called once, before `load`."""


class Denied(errors.Refused):
    """No certificate that can be used will come of this key."""

    reason = "Denied"


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """What an error says about the attempts that follow it."""

    # Whoever issues was reached, and answered.
    server_healthy: bool = False
    # The request was ended, and a new one is needed: attempts grow further apart than after a fault that passes.
    request_is_over: bool = False
    # This key will never be answered better: the next attempt has another one.
    key_is_spent: bool = False
    # What a person who waits is told of it; None: nobody said no.
    refusal: errors.Refused | None = None
    # That refusal is true of the next attempt, too.
    final: bool = False
    # The seconds for which whoever issues wants to be left alone.
    retry_after: float = 0.0
    # No failure: whoever waits does not want to wait any longer, and gets the error itself.
    ends: bool = False


Judge = Callable[[errors.HandfastError], Outlook]


def judge_plainly(error: errors.HandfastError) -> Outlook:
    """What is `Denied` is final, and everything else may pass."""
    if isinstance(error, Denied):
        return Outlook(server_healthy=True, request_is_over=True, key_is_spent=True, refusal=error, final=True)
    return Outlook()


async def next_pair(store: Store, obtain: Callable[[keys.PrivateKey], Awaitable[bytes]], judge: Judge) -> pairs.Pair:
    """The next pair, stored; `obtain` gives the certificate for a key in PEM, leaf first, then its chain."""
    # 1. in the store before it is asked for
    key = store.pending_key()
    try:
        pair = _presentable(pairs.join(await obtain(key), key))
    except errors.Refused as error:
        # 2. given up only when it is spent
        if judge(error).key_is_spent:
            store.discard_pending()
        raise
    store.save(pair)
    return pair


def _presentable(pair: pairs.Pair) -> pairs.Pair:
    """The pair as TLS takes it (3). A chain that it does not take, for a weak signature for instance, is left out.

    Stored all the same, it would end this process at the switch, and at every start after it.
    """
    alone = pairs.Pair(pair.chain[:1], pair.key)
    for candidate in (pair, alone):
        with contextlib.suppress(errors.Refused):
            tls.load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), candidate.certificate_pem, candidate.key_pem)
            return candidate
    raise Denied("the certificate returned is refused: TLS does not take it", reason="WrongCertificate")
