# SPDX-License-Identifier: Apache-2.0
"""Asks whether admission webhooks can be reached as the API server would reach them. It sends them nothing, and judges nothing.

1. One with a URL is connected to, over TLS that is verified by its caBundle. Loopback is another machine's, unless the API server is here.
2. One behind a Service has to have an endpoint that is ready. Addresses of Pods are not tried: nobody need reach them from here.
3. All are asked beside one another, each within its own deadline, so that one that is silent takes no other with it, and each is named.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final
from urllib import parse as urls

from handfast.api import jsonpath, kinds, objects, resources
from handfast.client import api, way
from handfast.rules.diagnoses import facts
from handfast.rules.webhooks import configurations
from handfast.runtime import addresses

_GROUP: Final = "admissionregistration.k8s.io"
_KINDS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_OF_SERVICE: Final = "kubernetes.io/service-name"


async def look(client: api.Client, server: str) -> list[facts.Hook]:
    """Every webhook."""
    webhooks: list[configurations.Webhook] = []
    for plural in _KINDS:
        for document in await client.list(kinds.row(plural, _GROUP)):
            webhooks += configurations.parse(document)
    # 3. beside one another
    return list(await asyncio.gather(*(_hook(client, server, each) for each in webhooks)))


async def _hook(client: api.Client, server: str, each: configurations.Webhook) -> facts.Hook:
    where = each.url
    if each.service is not None:
        where = f"Service {each.service.namespace}/{each.service.name}"
    if each.wrong:
        return facts.Hook(each.name, where, each.fails_open, each.wrong)
    trouble = await (_service(client, each.service) if each.service is not None else _url(server, each))
    return facts.Hook(each.name, where, each.fails_open, trouble)


async def _url(server: str, each: configurations.Webhook) -> str | None:
    door = way.Door(each.url, each.ca_bundle)
    # 1. loopback is another machine's
    if addresses.is_loopback(door.host) and not addresses.is_loopback(urls.urlsplit(server).hostname or ""):
        return None
    met = await door.troubled()
    return "" if met is None else f"{met.trouble.value} {met.detail}".strip()


async def _service(client: api.Client, service: configurations.Service) -> str:
    scope = api.Scope(namespace=service.namespace, label_selector=f"{_OF_SERVICE}={service.name}")
    slices = await client.list(resources.ENDPOINT_SLICES, scope)
    # 2. an endpoint that is ready
    return "" if any(_ready(slices)) else "no endpoint of it is ready"


def _ready(slices: Sequence[objects.Document]) -> Iterator[str]:
    for each in slices:
        for endpoint in jsonpath.mappings(each, "endpoints"):
            if jsonpath.at(endpoint, "conditions", "ready") is not False:
                yield from jsonpath.texts(endpoint, "addresses")
