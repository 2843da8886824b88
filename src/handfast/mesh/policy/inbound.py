# SPDX-License-Identifier: Apache-2.0
"""InboundServerPolicies: whom a proxy lets in on one port of its Pod, now and whenever that changes.

1. The token names a Pod, and the port is one [INVALID_ARGUMENT]. A stock proxy gives up for good on this code: it would say the same again.
2. What the policies say is known [UNAVAILABLE]: nobody is told that everybody may come in because nothing was read.
3. There is such a Pod [NOT_FOUND]. A stream ends so when the Pod goes.
4. Every Pod has an answer for every port. Where no policy is about it, the answer is that everybody may come in.
5. Pods that the same rules hold for get the same message, which is built once: a policy of a large namespace changes for thousands at once. So many
   messages are kept, of paths so long, and no more.

Who asks need not be the Pod: what policies say is no secret in the mesh. No client is let in by it.

| who | holding | tries | stopped by | shown in tests/unit/mesh/policy/test_inbound.py |
|---|---|---|---|---|
| a control plane that starts, or has lost a right | no policies | have every proxy let in everybody | 2 | test_nobody_is_told_anything_before_all_is_known |
| … | a right that was taken away | the same | 2 | test_policies_that_may_not_be_read_are_not_taken_for_none |
| a careless operator | a policy that cannot be read | the same | what cannot be read closes | test_a_policy_that_cannot_be_read_closes |
| a vandal in the mesh | any number of streams | the service's memory | `subjects` | test_there_are_so_many_streams_and_no_more |
| … | a connection | every stream that there is, so that no proxy learns its policy | `subjects` | test_one_client_does_not_take_all_streams |
| a tenant | Pods with probes of ever other paths | the service's memory | 5 | test_messages_are_not_kept_without_end |
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from handfast import errors
from handfast.mesh import cluster as cluster_module
from handfast.mesh import policies as policies_module
from handfast.mesh.policy import answers, subjects
from handfast.rules.mesh import meshed, policy, probes, workload_tokens
from handfast.wire import peers, policy_messages, server

MAX_PORT: Final = 65535
MOST_MESSAGES: Final = 1024
# Of all paths of a message together; longer ones are built for each.
_MOST_PATHS: Final = 4096
# Namespace, Pod and port.
_Key = tuple[str, str, int]


class Inbound:
    """The service."""

    def __init__(self, cluster: cluster_module.Cluster, policies: policies_module.Policies) -> None:
        self._cluster = cluster
        self._policies = policies
        self._subjects: subjects.Subjects[_Key] = subjects.Subjects(self._compute, lambda key: key[:2])
        # Messages with the rules they are built from, which must not go while they are found by.
        self._messages: dict[tuple[int, bool, tuple[str, ...]], tuple[policy.PortRules, Any]] = {}
        policies.subscribe(self._policies_changed)
        cluster.subscribe(self._cluster_changed)

    def methods(self) -> Sequence[server.Unary | server.Stream]:
        return (
            server.Unary("GetPort", policy_messages.PortSpec, policy_messages.Server, self.get),
            server.Stream("WatchPort", policy_messages.PortSpec, policy_messages.Server, self.watch),
        )

    async def get(self, message: Any, _peer: peers.Peer) -> Any:
        """The policy of this moment."""
        return self._subjects.now(_key(message))

    def watch(self, message: Any, peer: peers.Peer) -> AsyncIterator[Any]:
        """The policy, and each that differs from the one before."""
        return self._subjects.follow(_key(message), peer.place)

    def close(self) -> None:
        """End every stream."""
        self._subjects.close()

    def _compute(self, key: _Key) -> Any:
        namespace, name, port = key
        try:
            # 2. known
            self._policies.require_known()
            # 3. there is such a Pod
            pod = self._cluster.pod(namespace, name)
            if pod is None:
                raise server.Refusal("NOT_FOUND", f"unknown server: there is no Pod {namespace}/{name}")
            # 4. an answer for every port
            rules = self._policies.compiled(pod).inbound(port)
        except errors.Unavailable as unavailable:
            raise server.Refusal("UNAVAILABLE", unavailable.message) from None
        return self._message(rules, meshed.is_opaque(pod, port), probes.paths(pod, port))

    def _message(self, rules: policy.PortRules, is_opaque: bool, paths: tuple[str, ...]) -> Any:
        # 5. built once; the rules of all ports that no policy names are one object
        key = (id(rules), is_opaque, paths)
        if key in self._messages:
            return self._messages[key][1]
        message = answers.inbound(rules, is_opaque=is_opaque, probes=paths)
        if sum(map(len, paths)) <= _MOST_PATHS:
            if len(self._messages) >= MOST_MESSAGES:
                self._messages.clear()
            self._messages[key] = (rules, message)
        return message

    def _policies_changed(self, namespace: str) -> None:
        self._messages.clear()
        # A Pod is of the namespace of its policies.
        self._subjects.namespace_changed(namespace)

    def _cluster_changed(self, change: cluster_module.Change) -> None:
        if change.resource == cluster_module.PODS:
            self._subjects.object_changed(change.key)


def _key(message: Any) -> _Key:
    try:
        # 1. a Pod
        workload = workload_tokens.parse(message.workload)
    except errors.Refused as refused:
        raise server.Refusal("INVALID_ARGUMENT", refused.message) from None
    # 1. a port
    if not 1 <= message.port <= MAX_PORT:
        raise server.Refusal("INVALID_ARGUMENT", f"Invalid port: {message.port}")
    return workload.namespace, workload.pod, message.port
