# SPDX-License-Identifier: Apache-2.0
"""The Pod of a workload in the API: made or found, its token, its status, its end. It starts no process.

1. A Pod that is made here is removed here, by its UID: never another one that has its name.
2. One that got no proxy is removed at once, and made again a few times: while the injector starts, its webhook lets Pods in without one.
3. With a node's credentials nothing is asked that the Node authorizer does not allow: the Pod itself, its status, and tokens for its account that
   are bound to it.
4. Credentials are read again where their file has changed: a node's certificate does not last as long as its workloads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import jsonpath, objects, resources, status
from handfast.client import account_tokens, api
from handfast.client import connection as connections
from handfast.pki import certificates, pem
from handfast.rules.mesh import pod_environment, workload_pod, workload_status
from handfast.runtime import clock as clocks

_STRATEGIC: Final = "application/strategic-merge-patch+json"
_NODE: Final = "system:node:"
# 2. how long is waited before a Pod is made again; `handfast up --mesh` is ready some seconds before its injector on a busy machine
_AGAIN: Final = (1.0, 2.0, 4.0)


class Access(msgspec.Struct, frozen=True):
    """A client, how its connection is read again, and whose credentials they are: a node's name, or empty."""

    client: api.Client
    load: Callable[[], connections.Connection]
    node: str
    server: str


def node_of(connection: connections.Connection) -> str:
    """The node whose certificate a connection shows; empty: it is no node's."""
    if connection.cert_pem is None:
        return ""
    ders = pem.certificates_from_pem(connection.cert_pem, ignoring=[*pem.KEY_LABELS, pem.EC_PARAMETERS])
    name = certificates.read(ders[0]).subject.common_name or ""
    return name.removeprefix(_NODE) if name.startswith(_NODE) else ""


class Pods:
    """The Pods of workloads, as far as one run needs them."""

    def __init__(self, access: Access, clock: clocks.Clock) -> None:
        self._client = access.client
        self._load = access.load
        self._node = access.node
        self._clock = clock
        self._used = access.load()

    async def refresh(self) -> None:
        """Use the credentials of the moment (4)."""
        try:
            loaded = self._load()
        except errors.HandfastError:
            # While they are written anew, or are gone: those that were read are used on.
            return
        if loaded != self._used:
            self._used = loaded
            await self._client.transport.use(loaded)

    async def make(self, wanted: workload_pod.Wanted) -> objects.Document:
        """A new Pod, with its proxy."""
        for seconds in _AGAIN:
            try:
                return await self._make(wanted)
            except workload_pod.NotInjected:
                # 2. the injector may be a moment late
                await self._clock.sleep(seconds)
        return await self._make(wanted)

    async def _make(self, wanted: workload_pod.Wanted) -> objects.Document:
        try:
            pod = await self._client.create(resources.PODS, workload_pod.manifest(wanted), namespace=wanted.namespace)
        except status.StatusError as error:
            raise await self._explained(error, wanted) from error
        try:
            workload_pod.require_injected(pod)
        except workload_pod.NotInjected:
            # 2. nobody is to take it for one of the mesh
            await self.remove(pod)
            raise
        return pod

    async def _explained(self, error: status.StatusError, wanted: workload_pod.Wanted) -> errors.HandfastError:
        if error.reason == "AlreadyExists":
            error.hint = "choose another name with --name, or leave it out"
        elif error.reason == "Forbidden" and await self._lacks_account(wanted):
            return errors.Refused(
                f"there is no service account {wanted.namespace}/{wanted.account}",
                reason="AccountNotFound",
                hint=f"make it: kubectl -n {wanted.namespace} create serviceaccount {wanted.account}",
            )
        return error

    async def _lacks_account(self, wanted: workload_pod.Wanted) -> bool:
        try:
            account = await self._client.find(
                resources.SERVICE_ACCOUNTS, wanted.account, namespace=wanted.namespace, metadata=True
            )
        except errors.HandfastError:
            return False
        return account is None

    async def find(self, namespace: str, name: str) -> objects.Document:
        """A Pod that is there, and may be run with these credentials."""
        try:
            pod = await self._client.get(resources.PODS, name, namespace=namespace)
        except status.StatusError as error:
            if error.reason not in {"Forbidden", "NotFound"}:
                raise
            # 3. the authorizer tells a node nothing of what is not its own
            of = f" of node {self._node}" if self._node else ""
            raise errors.Refused(
                f"there is no Pod {namespace}/{name}{of}, or the credentials do not let it be seen: {error.message}",
                reason="PodNotFound",
                hint="name a Pod that is bound to the node whose kubeconfig is used; --kubeconfig names another",
            ) from error
        workload_pod.require_runnable(pod, self._node)
        return pod

    async def token(self, pod: Mapping[str, Any], projected: workload_pod.ProjectedToken) -> account_tokens.Token:
        """A fresh token of the Pod's account, bound to the Pod (3)."""
        meta = jsonpath.mapping(pod, "metadata")
        return await account_tokens.request(
            self._client,
            meta["namespace"],
            pod_environment.account(pod),
            seconds=projected.seconds,
            audiences=(projected.audience,) if projected.audience else (),
            pod=(meta["name"], meta["uid"]),
        )

    async def report(self, pod: Mapping[str, Any], facts: workload_status.Facts) -> None:
        """Write its status."""
        meta = jsonpath.mapping(pod, "metadata")
        patch = workload_status.document(pod, facts, self._clock.now())
        # Only of this one: the next of the same name is somebody else's.
        patch["metadata"] = {"uid": meta["uid"]}
        await self._client.patch(
            resources.PODS,
            meta["name"],
            patch,
            content_type=_STRATEGIC,
            namespace=meta["namespace"],
            subresource="status",
            metadata=True,
        )

    async def is_there(self, pod: Mapping[str, Any]) -> bool:
        """Whether it is still to run."""
        meta = jsonpath.mapping(pod, "metadata")
        try:
            now = await self._client.get(resources.PODS, meta["name"], namespace=meta["namespace"], metadata=True)
        except status.StatusError as error:
            # 3. a node does not see that it is gone: it is refused
            if error.reason == "NotFound" or (self._node and error.reason == "Forbidden"):
                return False
            raise
        same = jsonpath.text(now, "metadata", "uid") == meta["uid"]
        return same and not jsonpath.text(now, "metadata", "deletionTimestamp")

    async def remove(self, pod: Mapping[str, Any]) -> None:
        """Delete it, at once (1)."""
        meta = jsonpath.mapping(pod, "metadata")
        with api.MISSING_OK:
            await self._client.delete(
                resources.PODS, meta["name"], namespace=meta["namespace"], uid=meta["uid"], grace_seconds=0
            )

    async def remove_of_run(self, namespace: str, name: str, run: str) -> None:
        """Delete the Pod that a run has made, if it is there."""
        pod = await self._client.find(resources.PODS, name, namespace=namespace)
        if pod is not None and workload_pod.is_of_run(pod, run):
            await self.remove(pod)
