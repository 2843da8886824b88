# SPDX-License-Identifier: Apache-2.0
"""Bootstrap tokens of a cluster over its API: create, list, find, delete, and what a join command has to name.

What a token is and how it is shown is in `bootstrap`. It prints nothing, and asks for no more than each verb needs.

1. `create` never replaces a token: an id that is taken is an error.
2. `delete` compares the id only, and says whether there was one.
3. A join command names the servers and the CA of cluster-info, where there is one, since that is what a machine will
   use; else those of the kubeconfig.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import jsonpath, objects, resources, status
from handfast.bootstrap import cluster_info, diagnosis, tokens
from handfast.client import api, connection
from handfast.pki import pem
from handfast.runtime import clock as clocks

_LISTED: Final = api.Scope(namespace=tokens.NAMESPACE, field_selector=f"type={tokens.SECRET_TYPE}")


async def create(client: api.Client, document: objects.Document) -> None:
    """Have the Secret of a token there (1)."""
    try:
        await client.create(resources.SECRETS, document, namespace=tokens.NAMESPACE)
    except status.StatusError as error:
        if error.reason != "AlreadyExists":
            raise
        taken = tokens.parse_secret_name(document["metadata"]["name"])
        raise errors.Refused(
            f"a token with id {json.dumps(taken)} already exists",
            reason="TokenExists",
            hint=f"leave the token out to have a new one made, or delete that one: handfast token delete {taken}",
        ) from None


async def listed(client: api.Client) -> Sequence[objects.Document]:
    """The Secrets of all tokens, by name."""
    found = await client.list(resources.SECRETS, _LISTED)
    return sorted(found, key=lambda each: jsonpath.text(each, "metadata", "name"))


async def ids(client: api.Client) -> list[str]:
    """The ids of all tokens; their secrets are not asked for."""
    names = [
        jsonpath.text(each, "metadata", "name") for each in await client.list(resources.SECRETS, _LISTED, metadata=True)
    ]
    return [name.removeprefix(tokens.NAME_PREFIX) for name in names if name.startswith(tokens.NAME_PREFIX)]


async def find(client: api.Client, token_id: str) -> objects.Document | None:
    """The Secret of a token, None if there is none."""
    return await client.find(resources.SECRETS, tokens.secret_name(token_id), namespace=tokens.NAMESPACE)


async def delete(client: api.Client, token_id: str) -> bool:
    """Whether there was one to delete (2)."""
    with api.MISSING_OK:
        await client.delete(resources.SECRETS, tokens.secret_name(token_id), namespace=tokens.NAMESPACE)
        return True
    return False


async def known_cluster(client: api.Client, used: connection.Connection) -> cluster_info.ClusterInfo:
    """What a machine that joins is told (3)."""
    found = await client.find(resources.CONFIG_MAPS, cluster_info.NAME, namespace=cluster_info.NAMESPACE)
    text = jsonpath.text(found, "data", cluster_info.KUBECONFIG_KEY)
    own = cluster_info.ClusterInfo((used.server,), used.ca_pem, "")
    if not text:
        return own
    published = cluster_info.read(text)
    if used.ca_pem is not None and not _within(published.ca, used.ca_pem):
        # Many may write ConfigMaps in kube-public; whoever runs this trusts the CA of their own kubeconfig.
        raise errors.Refused(
            "the cluster-info ConfigMap names a certificate authority that is not in your kubeconfig",
            reason="UnknownAuthority",
            hint="if the CA was changed, take it into your kubeconfig first; if not, somebody has tampered with "
            f"{cluster_info.NAMESPACE}/{cluster_info.NAME}",
        )
    return published


def _within(published: bytes | None, own: bytes) -> bool:
    ders = pem.certificates_from_pem(published) if published is not None else []
    return bool(ders) and set(ders) <= set(pem.certificates_from_pem(own))


def ca_pins(ca: bytes | None) -> tuple[str, ...]:
    """The pins of every certificate of a CA bundle."""
    if ca is None:
        raise errors.Refused(
            "no CA certificates found in kubeconfig",
            reason="NoCertificateAuthority",
            hint="name the CA of the cluster in certificate-authority-data; a join command has to pin it",
        )
    # Here, because pins bring the cryptography library along, which `token list` can do without (45 ms).
    from handfast.pki import pins

    return tuple(str(pins.of_certificate(der)) for der in pem.certificates_from_pem(ca))


async def version(client: api.Client) -> str:
    """Which version the server says it is: `v1.37.0+handfast-0.1.0`."""
    try:
        found: dict[str, Any] = msgspec.json.decode(await client.transport.request("GET", "/version"), type=dict)
    except msgspec.DecodeError as error:
        raise errors.Unavailable(f"/version cannot be decoded: {error}", reason="BadAnswer") from error
    return jsonpath.text(found, "gitVersion")


async def enforces_limits(client: api.Client) -> bool:
    """Whether the server looks at what a token is limited to: only Handfast's own does."""
    return "+handfast" in await version(client)


async def clock_difference(used: connection.Connection, clock: clocks.Clock) -> datetime.timedelta | None:
    """The server's time minus this machine's, to a second; None where the server does not tell."""
    from handfast.client import anonymous

    try:
        answer = await anonymous.ask(f"{used.server.rstrip('/')}/version", anonymous.Trust(used.ca_pem))
    except (anonymous.Troubled, errors.Refused):
        return None
    skew = diagnosis.skew(answer.date, clock.now().replace(microsecond=0))
    return None if skew is None else -skew
