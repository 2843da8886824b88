# SPDX-License-Identifier: Apache-2.0
"""Makes a cluster joinable: applies the first objects over its API, whichever server that is.

It prints nothing, and knows no directory: see `init`. What is applied is in `bootstrap.first_objects`. No part of a server
is loaded here: `handfast up` runs this as a child on every start.

1. What is missing is created; what is there stays as it is, also where it says something else: an operator may have meant
   it. Doing it twice changes nothing.
2. A cluster that has `kubeadm-config` has been made joinable before: that ConfigMap is written last. Such a cluster
   gets a token only if one was asked for by name. On a first start nothing else in it is looked at: what was deleted
   since stays deleted.
3. A token that was asked for by name is created unless it is there. Another token with that id is an error.
"""

from __future__ import annotations

import datetime
from typing import Final

import msgspec

from handfast import errors
from handfast.api import resources, status
from handfast.bootstrap import cluster_info, endpoints, first_objects, token_views, tokens
from handfast.client import api
from handfast.client import tokens as over_api

_SYSTEM: Final = "kube-system"
CREATED: Final = "created"
KEPT: Final = "kept"
DIFFERENT: Final = "kept, though it says something else:"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What to apply. `token` is the one to create, None for none; one that nobody `named` is for a new cluster only."""

    servers: tuple[str, ...]
    ca: bytes | None
    token: tokens.Token | None = None
    named: bool = True
    ttl: datetime.timedelta | None = None
    first_start_only: bool = False


class Outcome(msgspec.Struct, kw_only=True):
    """What was done (verb and object), and the token that was made, if one was."""

    new: bool
    objects: list[tuple[str, str]] = msgspec.field(default_factory=list)
    token: tokens.Token | None = None
    expires: datetime.datetime | None = None
    servers: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()

    @property
    def join_command(self) -> str:
        """What to type on a machine that is to join; empty without a token."""
        return "" if self.token is None else token_views.join_command(self.servers, self.token, self.pins)


async def ensure(client: api.Client, wanted: Wanted, now: datetime.datetime) -> Outcome:
    """Apply what is missing (1 to 3)."""
    new = await client.find(resources.CONFIG_MAPS, first_objects.KUBEADM_CONFIG, namespace=_SYSTEM) is None
    outcome = Outcome(new=new, servers=wanted.servers, pins=over_api.ca_pins(wanted.ca))
    # 2. made joinable before: what was deleted since stays deleted
    if wanted.first_start_only and not new:
        return outcome
    system = await client.get(resources.NAMESPACES, _SYSTEM)
    info = cluster_info.ClusterInfo(wanted.servers, wanted.ca, system["metadata"]["uid"])
    version = (await over_api.version(client)).partition("+")[0]
    where = str(endpoints.of_server(wanted.servers[0]))
    for each in (
        *first_objects.access(),
        first_objects.kubelet_config(),
        first_objects.cluster_info_map(cluster_info.build(info)),
    ):
        outcome.objects.append((await create(client, each), each.title))
    await _token(client, wanted, now, outcome)
    last = first_objects.kubeadm_config(where, version)
    outcome.objects.append((await create(client, last), last.title))
    return outcome


async def create(client: api.Client, each: first_objects.FirstObject) -> str:
    """What was done with one object (1)."""
    try:
        await client.create(each, each.document, namespace=each.namespace)
    except status.StatusError as error:
        if error.reason != "AlreadyExists":
            raise
    else:
        return CREATED
    found = await client.find(each, each.name, namespace=each.namespace)
    return DIFFERENT if found is not None and first_objects.differs(found, each) else KEPT


async def _token(client: api.Client, wanted: Wanted, now: datetime.datetime, outcome: Outcome) -> None:
    token = wanted.token
    if token is None or not (wanted.named or outcome.new):
        return
    outcome.token, outcome.expires = token, None if wanted.ttl is None else now + wanted.ttl
    title = f"Secret {tokens.NAMESPACE}/{tokens.secret_name(token.id)}"
    try:
        await over_api.create(client, first_objects.first_token(token, outcome.expires))
    except errors.Refused as refused:
        # 3. the same token may be there; another with its id is an error
        found = await over_api.find(client, token.id) if refused.reason == "TokenExists" else None
        if found is None or (there := tokens.read(found)).token != token:
            raise
        outcome.expires = tokens.parse_expiration(there.expiration)
        outcome.objects.append((KEPT, title))
    else:
        outcome.objects.append((CREATED, title))
