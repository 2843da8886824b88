# SPDX-License-Identifier: Apache-2.0
"""OutboundPolicies: how a proxy reaches what its Pod connects to. A Service leads to its endpoints, by the destination service.

1. The token names a Pod, and the target is an address with a port, or an authority [INVALID_ARGUMENT].
2. The cluster is known [UNAVAILABLE].
3. A Service, by its own address or by its name, has a policy: its balancer asks the destination service, which knows identities. Where
   several have the address, nobody can tell [UNAVAILABLE]. Without
   one a proxy would connect to the address of the Service itself, which has no identity, in plaintext.
4. Whatever else it is has none [NOT_FOUND]: the proxy then goes by the profile of the address, which has the identity of a Pod. A stream
   ends so when the Service goes.

`requireIdentity.outbound` cannot be said in these messages: agents are told, stock proxies are not.
"""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator, Sequence
from typing import Any

from handfast import errors
from handfast.mesh import cluster as cluster_module
from handfast.mesh.policy import answers, inbound, subjects
from handfast.rules.mesh import authorities, endpoints, meshed, workload_tokens
from handfast.wire import peers, policy_messages, server


class Outbound:
    """The service."""

    def __init__(self, cluster: cluster_module.Cluster) -> None:
        self._cluster = cluster
        self._subjects: subjects.Subjects[authorities.Service] = subjects.Subjects(self._compute, lambda key: key.key)
        cluster.subscribe(self._changed)

    def methods(self) -> Sequence[server.Unary | server.Stream]:
        spec, policy = policy_messages.TrafficSpec, policy_messages.OutboundPolicy
        return (server.Unary("Get", spec, policy, self.get), server.Stream("Watch", spec, policy, self.watch))

    async def get(self, message: Any, _peer: peers.Peer) -> Any:
        """The policy of this moment."""
        return self._subjects.now(self._service(message))

    def watch(self, message: Any, peer: peers.Peer) -> AsyncIterator[Any]:
        """The policy, and each that differs from the one before."""
        return self._subjects.follow(self._service(message), peer.place)

    def _service(self, message: Any) -> authorities.Service:
        """The port of a Service that a message is about."""
        target = _target(message)
        # 2. known
        if not self._cluster.synced:
            raise server.Refusal("UNAVAILABLE", "the cluster was not listed")
        if isinstance(target, authorities.Service):
            return target
        # 3. by its own address
        try:
            service = endpoints.service_at(target.host, self._cluster)
        except meshed.Withheld as withheld:
            raise server.Refusal("UNAVAILABLE", f"{target} is withheld: {withheld.message}") from None
        if service is None:
            raise _not_found(str(target))
        return authorities.Service(service.metadata.namespace, service.metadata.name, target.port)

    def close(self) -> None:
        """End every stream."""
        self._subjects.close()

    def _compute(self, key: authorities.Service) -> Any:
        service = self._cluster.service(key.namespace, key.name)
        # 4. nothing else has one
        if service is None or service.is_external or key.instance:
            raise _not_found(f"{key.fqdn}:{key.port}")
        return answers.outbound(key, is_opaque=meshed.is_opaque(service, key.port))

    def _changed(self, change: cluster_module.Change) -> None:
        if change.resource == cluster_module.SERVICES:
            self._subjects.object_changed(change.key)


def _target(message: Any) -> authorities.Service | authorities.Address:
    try:
        # 1. a Pod, and where it wants to go
        workload_tokens.parse(message.source_workload)
        kind = message.WhichOneof("target")
        if kind == "authority":
            return authorities.parse(message.authority)
    except authorities.InvalidAuthority as invalid:
        raise server.Refusal("NOT_FOUND", invalid.message) from None
    except errors.Refused as refused:
        raise server.Refusal("INVALID_ARGUMENT", refused.message) from None
    if kind is None or message.addr.ip.WhichOneof("ip") is None:
        raise server.Refusal("INVALID_ARGUMENT", "traffic target must have an IP, or be an authority")
    if not 1 <= message.addr.port <= inbound.MAX_PORT:
        raise server.Refusal("INVALID_ARGUMENT", f"Invalid port: {message.addr.port}")
    return authorities.Address(authorities.canonical(_text(message.addr.ip)), message.addr.port)


def _text(address: Any) -> str:
    if address.WhichOneof("ip") == "ipv4":
        return str(ipaddress.IPv4Address(address.ipv4))
    return str(ipaddress.IPv6Address(address.ipv6.first << 64 | address.ipv6.last))


def _not_found(what: str) -> server.Refusal:
    return server.Refusal("NOT_FOUND", f"No such service: {what}")
