# SPDX-License-Identifier: Apache-2.0
"""One exchange of a key for a certificate: the key from the store, the request, and the pair back into the store.

When to make it, with which client, and what follows a failure is the caller's; what goes over the wire is in
`client.certificates`.

1. The key is on disk before it is asked for, and the next attempt, or the next process, goes on with it.
2. A key whose request was denied, failed or was answered wrongly is given up: its name is that of the request. A request
   that was only deleted is made again with the same key.
3. What TLS would not take is not stored.
"""

from __future__ import annotations

import contextlib
import ssl

from handfast import errors
from handfast.client import api
from handfast.client import certificates as requests
from handfast.node import certificate_store
from handfast.pki import pairs
from handfast.rules import certificate_wishes
from handfast.runtime import clock as clocks
from handfast.runtime import tls


async def renew(
    store: certificate_store.CertificateStore,
    client: api.Client,
    wanted: certificate_wishes.Wanted,
    *,
    clock: clocks.Clock,
    seconds: float,
    waits: requests.Waits = requests.patiently,
) -> pairs.Pair:
    """The next pair, stored."""
    # 1.
    key = store.pending_key()
    try:
        data = await requests.obtain(client, key, wanted, clock=clock, seconds=seconds, waits=waits)
        pair = _presentable(pairs.join(data, key))
    except errors.Refused as error:
        # 2.
        if error.reason in requests.KEY_IS_SPENT:
            store.discard_pending()
        raise
    store.save(pair)
    return pair


def _presentable(pair: pairs.Pair) -> pairs.Pair:
    """3. The pair as TLS takes it: a chain that it does not take, for a weak signature for instance, is left out.

    Stored all the same, it would end this agent at the switch, and every start after it.
    """
    alone = pairs.Pair(pair.chain[:1], pair.key)
    for found in (pair, alone):
        with contextlib.suppress(errors.Refused):
            tls.load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), found.certificate_pem, found.key_pem)
            return found
    raise errors.Refused("the certificate returned is refused: TLS does not take it", reason="WrongCertificate")
