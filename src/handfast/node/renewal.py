# SPDX-License-Identifier: Apache-2.0
"""What a node does with the answers to its certificate requests: which key is given up, and when it asks again.

`client.issuance` has the order of key, request and pair. What goes over the wire is in `client.requests`.

1. A key whose request was denied, failed or was answered wrongly is given up: a request is named after its key, so the same
   key would find the same answer.
2. A request that was only deleted is made again with the same key, after a time that grows as after a denial.
3. Everything else may pass: the same request is asked again.
"""

from __future__ import annotations

from handfast import errors
from handfast.api import status
from handfast.client import api, issuance, requests
from handfast.client import transport as transports
from handfast.node import certificate_store
from handfast.pki import pairs
from handfast.rules.certificates import wishes
from handfast.runtime import clock as clocks


async def renew(
    store: certificate_store.CertificateStore,
    client: api.Client,
    wanted: wishes.Wanted,
    *,
    clock: clocks.Clock,
    seconds: float,
) -> pairs.Pair:
    """The next pair, stored; for who asks one time."""
    return await issuance.next_pair(
        store, lambda key: requests.file_and_wait(client, key, wanted, clock=clock, seconds=seconds), judge
    )


def judge(error: errors.HandfastError) -> issuance.Outlook:
    """What an error says about the next request."""
    refusal = requests.refusal_of(error)
    return issuance.Outlook(
        server_healthy=healthy_after(error),
        # 2. over, but not its key
        request_is_over=error.reason in requests.REQUEST_IS_OVER,
        # 1. given up
        key_is_spent=error.reason in requests.KEY_IS_SPENT,
        refusal=refusal,
        final=refusal is not None and requests.is_final(refusal),
        retry_after=float(error.retry_after) if isinstance(error, status.StatusError) else 0.0,
        ends=isinstance(error, requests.NotWaitedFor),
    )


def healthy_after(error: errors.HandfastError) -> bool:
    """Whether an API server that answered so is up: it knows us not, or refuses us in its own words."""
    if isinstance(error, status.StatusError):
        return error.code == 401 or (
            error.reason in {"NotFound", "Forbidden"} and not isinstance(error, transports.UnexpectedAnswer)
        )
    # What is said of a request or of its certificate was said by a server.
    return isinstance(error, requests.StillPending) or error.reason in {
        *requests.REQUEST_IS_OVER,
        "CertificateNotYetValid",
    }
