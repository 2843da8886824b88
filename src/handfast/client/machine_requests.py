# SPDX-License-Identifier: Apache-2.0
"""Requests for kubelets' client certificates as the machine-approver's rules see them, read over any API. It judges none."""

from __future__ import annotations

import contextlib
import datetime
from typing import Final

import msgspec

from handfast import errors
from handfast.api import objects, resources, signer_names, signing_requests
from handfast.client import api
from handfast.rules.certificates import kubelet
from handfast.rules.machines import revocation, rivals

REQUESTS: Final = msgspec.json.Decoder(api.Listing[signing_requests.Request])


async def pending(client: api.Client) -> list[rivals.Asking]:
    """The requests for kubelets' client certificates that wait, as far as they can be read."""
    waiting: list[rivals.Asking] = []
    async for page in client.pages(resources.SIGNING_REQUESTS, api.EVERYTHING, REQUESTS):
        for item in page.items:
            if revocation.is_pending(item) and item.spec.signer_name == signer_names.KUBELET_CLIENT:
                with contextlib.suppress(errors.Refused):
                    waiting.append(asking(item, kubelet.read(item.document())))
    return waiting


def asking(item: signing_requests.Request, facts: kubelet.Facts) -> rivals.Asking:
    """A request as one of several, of the version that was read."""
    version = item.metadata.resource_version
    return rivals.Asking(facts, created(item), int(version) if version.isdecimal() else 0)


def created(item: signing_requests.Request) -> datetime.datetime:
    """When a request was created, as the server wrote it down."""
    try:
        return objects.parse_timestamp(item.metadata.creation_timestamp or "")
    except ValueError:
        raise errors.Unavailable("the request does not say when it was created", reason="BadAnswer") from None
