# SPDX-License-Identifier: Apache-2.0
"""Tokens of service accounts, asked for over the API, and kept in files for whoever logs in with them. It renews nothing by itself.

1. A token is for as long, and for whom, as the caller says; without an audience it is for the API server. One that is bound to a Pod ends with it.
2. A file is the old token or the new one, whenever the process dies, and nobody but its owner reads it.
3. All are asked for before the first is written: a server that refuses one leaves every old one in place.

| who | holding | tries | stopped by | shown in tests/unit/client/test_account_tokens.py |
|---|---|---|---|---|
| another user of the machine | the path of a data directory | read the token of a service | 2 | test_every_account_gets_a_file_that_only_its_owner_reads |
| whoever reads logs | a message about a token | find it there | 1: it does not print | test_a_token_for_somebody_names_them_and_does_not_print |
"""

from __future__ import annotations

import datetime
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from handfast.api import jsonpath, objects, resources
from handfast.client import api
from handfast.runtime import files


@dataclass(frozen=True, slots=True)
class Token:
    """A token and its end. It does not print."""

    text: str = field(repr=False)
    expires: datetime.datetime


async def request(
    client: api.Client,
    namespace: str,
    account: str,
    *,
    seconds: int,
    audiences: Sequence[str] = (),
    pod: tuple[str, str] | None = None,
) -> Token:
    """A fresh token of an account; `pod` is name and UID of the Pod that it is bound to (1)."""
    spec: dict[str, Any] = {"expirationSeconds": seconds, **({"audiences": list(audiences)} if audiences else {})}
    if pod is not None:
        spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": pod[0], "uid": pod[1]}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = await client.create(
        resources.SERVICE_ACCOUNTS, body, namespace=namespace, name=account, subresource="token"
    )
    status = jsonpath.mapping(answer, "status")
    return Token(str(status["token"]), objects.parse_timestamp(status["expirationTimestamp"]))


async def keep(
    client: api.Client, namespace: str, places: Mapping[str, pathlib.Path], *, seconds: int
) -> datetime.datetime:
    """Write a fresh token of each account to its place; when the first of them ends."""
    # 3. all before the first is written
    tokens = {account: await request(client, namespace, account, seconds=seconds) for account in places}
    for account, place in places.items():
        # 2. the old one or the new one, and its owner's alone
        files.write_atomically(place, tokens[account].text.encode("ascii"), mode=0o600)
    return min(token.expires for token in tokens.values())
