# SPDX-License-Identifier: Apache-2.0
"""Looks up what `rules.mesh.explanation` tells of a call in the mesh. It reads only, and works on any API server.

1. Without the settings, the Pods or the policies nothing can be told: what forbids to read them is an error.
2. The ledger, the Revocations and what agents reported may be left out: which of them may not be read is named, so that nobody takes "not seen" for "not there".
3. Pods of other namespaces count where an EndpointSlice has an address without a Pod's name. Where they may not be listed, those of the
   server's namespace do.
"""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import handfast_kinds, resources, signer_names, status
from handfast.client import api, mesh_edges, mesh_settings
from handfast.rules import revocation, user_names
from handfast.rules.ledger import entries, segments
from handfast.rules.mesh import (
    authorities,
    edges,
    endpoints,
    ends,
    explanation,
    issued,
    meshed,
    names,
    policy,
    policy_documents,
    settings,
    views,
)

_PODS: Final = msgspec.json.Decoder(api.Listing[views.Pod])
_SLICES: Final = msgspec.json.Decoder(api.Listing[views.Slice])
_SERVICE: Final = msgspec.json.Decoder(views.Service)
# What nobody has while no port is chosen.
_ANY: Final = "0.0.0.0"  # noqa: S104 - never bound


class PortNeeded(errors.Refused):
    """Which port of a Service is meant cannot be told."""

    reason = "PortNeeded"


class Look:
    """What is known of one call; it is `endpoints.Known`, too."""

    def __init__(self, client: api.Client, namespace: str, now: datetime.datetime) -> None:
        self._client = client
        self._namespace = namespace
        self._now = now
        self._settings = settings.Settings()
        self._pods: dict[tuple[str, str], views.Pod] = {}
        self._accounts: dict[tuple[str, str], str] = {}
        self._revocations = revocation.Index()
        self._certificates: list[issued.Certificate] = []
        self._workloads: list[edges.Workload] = []
        self.unread: set[str] = set()

    # As `endpoints` asks.

    @property
    def mesh(self) -> names.Mesh:
        return self._settings.mesh(self._namespace)

    def pod(self, namespace: str, name: str) -> views.Pod | None:
        return self._pods.get((namespace, name))

    def pods_at(self, ip: str) -> Sequence[views.Pod]:
        return [pod for pod in self._pods.values() if not pod.ended and ip in map(authorities.canonical, pod.ips)]

    def facts(self, pod: views.Pod) -> meshed.Facts:
        uid = self._accounts.get((pod.metadata.namespace, pod.account), "")
        revoked = bool(self._revoked(self._account(pod.metadata.namespace, pod.account), pod)[0])
        return meshed.Facts(mesh=self.mesh, enabled=self._settings.enabled, uid=uid, revoked=revoked)

    # What is looked up.

    async def read(self, caller: ends.End, called: ends.End) -> explanation.Facts:
        """Everything about one call."""
        self._settings = await mesh_settings.read(self._client, self._namespace)
        homes = list(dict.fromkeys(end.namespace for end in (caller, called) if end.namespace))
        await self._read_pods(homes)
        for home in homes:
            rows = await self._client.list(resources.SERVICE_ACCOUNTS, api.Scope(namespace=home), metadata=True)
            self._accounts |= {(home, row["metadata"]["name"]): row["metadata"]["uid"] for row in rows}
        # 1. the policies are never left out
        policies = [await self._policies(home) for home in homes]
        # 2. what may be left out
        await self._try("revocations", self._read_revocations)
        await self._try("ledger", self._read_ledger)
        await self._try("meshworkloads", lambda: self._read_workloads(homes))
        servers, missing = await self._servers(called)
        source = self._workload(caller)
        facts = meshed.Facts(mesh=self.mesh) if source is None or source.pod is None else self.facts(source.pod)
        return explanation.Facts(
            naming=policy.Naming(self.mesh, lambda *key: self._accounts.get(key, "")),
            now=self._now,
            client=source,
            # Whether it is revoked is a check of its own.
            client_facts=meshed.Facts(mesh=facts.mesh, enabled=self._settings.enabled, uid=facts.uid),
            servers=servers,
            policies=[each for rows in policies for each in rows],
            missing=missing,
            unread=frozenset(self.unread),
            observed=edges.joined(self._workloads),
        )

    async def _read_pods(self, homes: Sequence[str]) -> None:
        try:
            await self._add_pods(api.EVERYTHING)
        except status.StatusError as error:
            if error.reason != "Forbidden":
                raise
            # 3. those that may be read
            for home in homes:
                await self._add_pods(api.Scope(namespace=home))

    async def _add_pods(self, scope: api.Scope) -> None:
        async for page in self._client.pages(resources.PODS, scope, _PODS):
            self._pods |= {pod.metadata.key: pod for pod in page.items}

    async def _policies(self, namespace: str) -> list[policy_documents.Policy]:
        with api.MISSING_OK:
            rows = await self._client.list(handfast_kinds.MESH_POLICY, api.Scope(namespace=namespace))
            return [policy_documents.parse(row) for row in rows]
        return []

    async def _read_revocations(self) -> None:
        with api.MISSING_OK:
            for document in await self._client.list(handfast_kinds.REVOCATION):
                self._revocations.add(revocation.read(document))

    async def _read_ledger(self) -> None:
        with api.MISSING_OK:
            for document in await self._client.list(handfast_kinds.ISSUANCE_LOG):
                for line in segments.read(document).entries:
                    # Cheap test first: most lines may be about others.
                    if signer_names.MESH_IDENTITY in line:
                        self._certificates += _certificate(line)

    async def _read_workloads(self, homes: Sequence[str]) -> None:
        for home in homes:
            self._workloads += await mesh_edges.reported(self._client, api.Scope(namespace=home))

    async def _try(self, what: str, ask: Callable[[], Awaitable[None]]) -> None:
        try:
            await ask()
        except status.StatusError as error:
            if error.reason != "Forbidden":
                raise
            # 2. named
            self.unread.add(what)

    # Who they are.

    def _workload(self, end: ends.End) -> explanation.Workload | None:
        if end.kind is ends.Kind.NOBODY:
            return None
        if end.kind is ends.Kind.POD:
            return self._of_pod(self._require_pod(end))
        pods = self._pods_of(end)
        return self._of_pod(pods[0]) if pods else self._of_account(end)

    def _pods_of(self, end: ends.End) -> list[views.Pod]:
        """The Pods that run as an account, those with a proxy first."""
        rows = [
            pod
            for pod in self._pods.values()
            if (pod.metadata.namespace, pod.account) == (end.namespace, end.name) and not pod.ended
        ]
        return sorted(rows, key=lambda pod: (pod.proxy is None, pod.metadata.name))

    def _require_pod(self, end: ends.End) -> views.Pod:
        pod = self.pod(end.namespace, end.name)
        if pod is None:
            raise errors.Refused(
                f"there is no Pod {end.namespace}/{end.name}",
                reason="NotFound",
                hint="an account is written sa/NS/NAME, and a Service svc/NS/NAME",
            )
        return pod

    def _account(self, namespace: str, name: str) -> names.Account:
        return names.Account(namespace=namespace, name=name, uid=self._accounts.get((namespace, name), ""))

    def _of_account(self, end: ends.End) -> explanation.Workload:
        account = self._account(end.namespace, end.name)
        there = (end.namespace, end.name) in self._accounts
        why, by = self._revoked(account, None)
        certificate = self._newest(account, None)
        return explanation.Workload(
            account=account, account_exists=there, certificate=certificate, revoked=why, revoked_by=by
        )

    def _of_pod(self, pod: views.Pod) -> explanation.Workload:
        account = self._account(pod.metadata.namespace, pod.account)
        why, by = self._revoked(account, pod)
        certificate = self._newest(account, pod)
        return explanation.Workload(account=account, pod=pod, certificate=certificate, revoked=why, revoked_by=by)

    def _newest(self, account: names.Account, pod: views.Pod | None) -> issued.Certificate | None:
        user = user_names.service_account_user(account.namespace, account.name)
        rows = [row for row in self._certificates if row.requester == user and _is_of(row, pod)]
        return max(rows, key=lambda row: row.not_after, default=None)

    def _revoked(self, account: names.Account, pod: views.Pod | None) -> tuple[str, str]:
        """Why somebody is refused, in words, and by which Revocation; empty where nobody does."""
        certificate = self._newest(account, pod)
        targets = [("user", user_names.service_account_user(account.namespace, account.name))]
        targets += [] if certificate is None else certificate.targets()
        if pod is not None:
            meta = pod.metadata
            targets += [("node", pod.spec.node_name or "")]
            targets += [("pod", revocation.pod_text(meta.namespace, meta.name, uid)) for uid in (meta.uid, "")]
        by = self._revocations.refusing(targets, self._now)
        return ("", "") if by is None else (f'it is refused by Revocation "{by.name}": {by.reason}', by.name)

    # Where they are.

    async def _servers(self, end: ends.End) -> tuple[list[explanation.Server], str]:
        if end.kind is ends.Kind.SERVICE:
            return await self._of_service(end)
        if not end.port:
            raise PortNeeded(f"which port of {end} is meant is not said", hint=f"write {end}:PORT")
        pods = [self._require_pod(end)] if end.kind is ends.Kind.POD else self._pods_of(end)
        if pods:
            return [self._server(pod, end.port) for pod in pods], ""
        workload = self._of_account(end)
        if not workload.account_exists:
            return [], f"there is no account {end.namespace}/{end.name}"
        # Judged as if one ran.
        address = authorities.Address(_ANY, end.port)
        standing = meshed.Standing(identity=self.mesh.name(workload.account))
        outcome = endpoints.Endpoint(address, standing)
        return [explanation.Server(outcome=outcome, workload=workload, assumed=True)], ""

    def _server(self, pod: views.Pod, port: int) -> explanation.Server:
        address = authorities.Address(next(map(authorities.canonical, pod.ips), "") or _ANY, port)
        try:
            outcome: endpoints.Endpoint | endpoints.Withheld = endpoints.of_pod(pod, address, self)
        except meshed.Withheld as withheld:
            outcome = endpoints.Withheld(address, withheld.why, withheld.message)
        return explanation.Server(outcome=outcome, workload=self._of_pod(pod))

    async def _of_service(self, end: ends.End) -> tuple[list[explanation.Server], str]:
        try:
            service = await self._client.view(resources.SERVICES, end.name, _SERVICE, namespace=end.namespace)
        except status.StatusError as error:
            if error.reason != "NotFound":
                raise
            return [], f"there is no Service {end.namespace}/{end.name}"
        if service.is_external:
            return [], f"Service {end.namespace}/{end.name} is an ExternalName: the mesh does not discover it"
        wanted = authorities.Service(end.namespace, end.name, end.port or _only_port(service, end))
        slices: list[views.Slice] = []
        scope = api.Scope(namespace=end.namespace, label_selector=f"{views.SERVICE_NAME}={end.name}")
        async for page in self._client.pages(resources.ENDPOINT_SLICES, scope, _SLICES):
            slices += page.items
        outcomes = [endpoints.judge(row, self) for row in endpoints.candidates(service, wanted, slices)]
        return [explanation.Server(outcome=each, workload=self._at(each.address.host)) for each in outcomes], ""

    def _at(self, host: str) -> explanation.Workload | None:
        pods = self.pods_at(host)
        return self._of_pod(pods[0]) if len(pods) == 1 else None


def _only_port(service: views.Service, end: ends.End) -> int:
    ports = [row.port for row in service.spec.ports or ()]
    if len(ports) != 1:
        raise PortNeeded(
            f"Service {end.namespace}/{end.name} has {len(ports)} ports: {', '.join(map(str, ports)) or 'none'}",
            hint=f"write {end}:PORT",
        )
    return ports[0]


def _certificate(line: str) -> list[issued.Certificate]:
    try:
        entry = entries.decode_stored(line)
    except errors.Refused:
        return []
    return [issued.read(entry)] if entry.signer == signer_names.MESH_IDENTITY else []


def _is_of(row: issued.Certificate, pod: views.Pod | None) -> bool:
    """Whether a certificate is in this Pod; of no Pod in particular, any is."""
    if pod is None:
        return True
    holder = row.holder
    return (holder.namespace, holder.pod) == pod.metadata.key and holder.uid in {"", pod.metadata.uid}


async def look(
    client: api.Client, caller: ends.End, called: ends.End, namespace: str, now: datetime.datetime
) -> explanation.Facts:
    """The facts of one call."""
    return await Look(client, namespace, now).read(caller, called)


def as_row(check: policy.Check) -> dict[str, Any]:
    """A check for machines."""
    return {"check": check.name, "ok": check.passed, "seen": check.sentence}
