# SPDX-License-Identifier: Apache-2.0
"""Reads the issuance ledger whole: every certificate that it has an entry of. Following it is `client.watch`'s, writing it `client.ledger`'s."""

from __future__ import annotations

from handfast import errors
from handfast.api import handfast_kinds, status
from handfast.client import api
from handfast.rules.ledger import entries as ledger_entries
from handfast.rules.ledger import segments


async def entries(client: api.Client, *signers: str) -> list[ledger_entries.Entry] | None:
    """Every certificate in the ledger, or those of these signers; None where the API has no ledger. A line that cannot be read is refused."""
    try:
        documents = await client.list(handfast_kinds.ISSUANCE_LOG)
    except status.StatusError as error:
        if error.reason == "NotFound":
            return None
        raise
    lines = [line for document in documents for line in segments.read(document).entries]
    try:
        return [
            ledger_entries.decode_stored(line) for line in lines if not signers or any(each in line for each in signers)
        ]
    except errors.Refused as refused:
        raise errors.Refused(
            f"the ledger cannot be read: {refused.message}",
            reason="UnreadableLedger",
            hint="`handfast ledger verify` tells what is wrong with it",
        ) from None
