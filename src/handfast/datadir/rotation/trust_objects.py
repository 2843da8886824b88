# SPDX-License-Identifier: Apache-2.0
"""The objects that tell of CAs and keys, during a rotation: what is written to them, and what is read.

It changes no file. While a control plane runs, its controllers publish what is in the CA file, and here it is only read whether
they have. While it is stopped, nobody else publishes, and it is done here.

1. The bundle of client CAs gets or loses the one CA that is meant. Whatever else administrators put there stays. A CA is removed
   by its key, with every certificate of that key. A CA that is added belongs to the directory from then on, also where a
   ConfigMap gave it before (`rules.client_ca_bundle`): deleting that ConfigMap does not take it away. A CA that is removed comes
   back while a ConfigMap still gives it. `outdated` names that ConfigMap.
2. A CA is published when every `kube-root-ca.crt` and `kube-public/cluster-info` that exist hold it, and withdrawn when
   none of them, nor the bundle of client CAs, has a certificate of its key.
3. A key of tokens is published when the API server's own key set has it.
4. A node runs if its Lease is being renewed, as for its recovery (`rules.nodes.liveness`).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import datetime
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib import parse as urls

import msgspec

from handfast import errors
from handfast.api import jsonpath, resources, status
from handfast.bootstrap import cluster_info
from handfast.client import api
from handfast.client import connection as connections
from handfast.pki import bundles, certificates, jwt, keys
from handfast.rules import client_ca_bundle
from handfast.rules.nodes import liveness
from handfast.rules.tokens import service_accounts
from handfast.runtime import tls

_ROOT_CA: Final = "kube-root-ca.crt"
_ROOT_CA_KEY: Final = "ca.crt"
_TRIES: Final = 5
_CONNECT_SECONDS: Final = 10.0


# --- the client CAs


async def trust_client_ca(client: api.Client, der: bytes) -> bool:
    """Have the API server believe certificates of a CA (1); whether that changed anything."""
    return await _change(client, lambda bundle: bundle.add(der), own=(certificates.fingerprint(der),))


async def distrust_client_ca(client: api.Client, leaving: Sequence[str]) -> bool:
    """Have it believe them no longer (1), named as in `TrustBundle.of_key`; whether that changed anything."""

    def without(bundle: bundles.TrustBundle) -> bundles.TrustBundle:
        return bundle.retire(*leaving) if bundle.of_key(*leaving) else bundle

    return await _change(client, without)


async def _change(
    client: api.Client, change: Callable[[bundles.TrustBundle], bundles.TrustBundle], own: Sequence[str] = ()
) -> bool:
    for attempt in range(_TRIES):
        config_map = await client.get(
            resources.CONFIG_MAPS, client_ca_bundle.NAME, namespace=client_ca_bundle.NAMESPACE
        )
        bundle = client_ca_bundle.read(config_map)
        wanted = change(bundle)
        record = client_ca_bundle.record(config_map)
        claimed = [one for one in own if one in record.certificates]
        if wanted == bundle and not claimed:
            return False
        config_map["data"] = {**config_map["data"], client_ca_bundle.KEY: wanted.to_pem().decode()}
        if claimed:
            config_map["data"][client_ca_bundle.SOURCES_KEY] = record.without(*claimed).text()
        try:
            await client.update(resources.CONFIG_MAPS, config_map)
        except status.StatusError as error:
            if error.reason != "Conflict" or attempt == _TRIES - 1:
                raise
        else:
            return True
    raise errors.Misuse("the last attempt raises or returns")


# --- what clients are told


async def outdated(client: api.Client, *, wanted: str = "", unwanted: Sequence[str] = ()) -> list[str]:
    """The ConfigMaps that do not hold the CA `wanted`, or still hold `unwanted` (2); by namespace/name."""
    lacking = []
    if unwanted:
        config_map = await client.get(
            resources.CONFIG_MAPS, client_ca_bundle.NAME, namespace=client_ca_bundle.NAMESPACE
        )
        left = client_ca_bundle.read(config_map).of_key(*unwanted)
        if left:
            lacking.append(f"{client_ca_bundle.NAMESPACE}/{client_ca_bundle.NAME}{_sources_of(config_map, left)}")
    for config_map in await _root_cas(client):
        text = str(jsonpath.at(config_map, "data", _ROOT_CA_KEY) or "")
        if not _holds(text.encode(), wanted, unwanted):
            lacking.append(f"{config_map['metadata']['namespace']}/{_ROOT_CA}")
    info = await _cluster_info(client)
    if info is not None and info[1].ca is not None and not _holds(info[1].ca, wanted, unwanted):
        lacking.append(f"{cluster_info.NAMESPACE}/{cluster_info.NAME}")
    return lacking


def _sources_of(config_map: dict[str, Any], left: Sequence[certificates.Certificate]) -> str:
    """Which ConfigMaps bring these back."""
    record = client_ca_bundle.record(config_map).certificates
    sources = sorted({source for each in left for source in record.get(each.fingerprint, ())})
    return f" (given by {', '.join(sources)})" if sources else ""


async def publish(client: api.Client, text: bytes) -> int:
    """Write the CAs (PEM) where clients look for them; how many objects were changed."""
    changed = 0
    for config_map in await _root_cas(client):
        if jsonpath.at(config_map, "data", _ROOT_CA_KEY) != text.decode():
            config_map["data"] = {_ROOT_CA_KEY: text.decode()}
            await client.update(resources.CONFIG_MAPS, config_map)
            changed += 1
    info = await _cluster_info(client)
    if info is not None and info[1].ca is not None and info[1].ca != text:
        config_map, described = info
        # Signatures are made anew by whoever makes them; until then they do not verify, and nobody is misled.
        written = cluster_info.build(cluster_info.ClusterInfo(described.servers, text, described.id))
        config_map["data"] = {**config_map["data"], cluster_info.KUBECONFIG_KEY: written}
        await client.update(resources.CONFIG_MAPS, config_map)
        changed += 1
    return changed


async def _root_cas(client: api.Client) -> Sequence[dict[str, Any]]:
    return await client.list(resources.CONFIG_MAPS, api.Scope(field_selector=f"metadata.name={_ROOT_CA}"))


async def _cluster_info(client: api.Client) -> tuple[dict[str, Any], cluster_info.ClusterInfo] | None:
    config_map = await client.find(resources.CONFIG_MAPS, cluster_info.NAME, namespace=cluster_info.NAMESPACE)
    text = None if config_map is None else jsonpath.at(config_map, "data", cluster_info.KUBECONFIG_KEY)
    if config_map is None or not isinstance(text, str):
        return None
    return config_map, cluster_info.read(text)


def _holds(data: bytes, wanted: str, unwanted: Sequence[str]) -> bool:
    try:
        found = bundles.TrustBundle.from_pem(data)
    except errors.Refused:
        return False
    return (not wanted or wanted in {anchor.fingerprint for anchor in found.anchors}) and not found.of_key(*unwanted)


async def published_keys(client: api.Client) -> frozenset[str]:
    """The ids of the keys in the API server's key set (3)."""
    body = msgspec.json.decode(await client.transport.request("GET", jwt.JWKS_PATH))
    return frozenset(str(key.get("kid", "")) for key in body.get("keys", ()))


async def served_certificate(connection: connections.Connection) -> bytes:
    """The certificate that the API server serves new connections with (DER)."""
    url = urls.urlsplit(connection.server)
    context = tls.client_context(connection.ca_pem)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(url.hostname, url.port or 443, ssl=context)
    except (OSError, TimeoutError, ssl.SSLError) as error:
        raise errors.Unavailable(f"{connection.server} cannot be reached: {error}", reason="Unreachable") from error
    try:
        return bytes(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


# --- who depends on it


async def running_nodes(client: api.Client, now: datetime.datetime) -> frozenset[str]:
    """The nodes that renew their Lease (4)."""
    found = await client.list(resources.LEASES, api.Scope(namespace=liveness.NAMESPACE))
    return frozenset(str(lease["metadata"]["name"]) for lease in found if liveness.is_fresh(lease, now))


async def old_tokens(client: api.Client, staying: keys.PublicKey) -> list[str]:
    """The Secrets whose token is not signed by this key, by namespace/name."""
    key_set = jwt.KeySet([staying])
    secrets = []
    scope = api.Scope(field_selector=f"type={service_accounts.LEGACY_TYPE}")
    for secret in await client.list(resources.SECRETS, scope):
        packed = jsonpath.at(secret, "data", "token")
        if not packed:
            continue
        try:
            key_set.verify(base64.b64decode(str(packed), validate=True).decode("ascii", "replace"))
        except (errors.Refused, binascii.Error):
            secrets.append(f"{secret['metadata']['namespace']}/{secret['metadata']['name']}")
    return sorted(secrets)
