# SPDX-License-Identifier: Apache-2.0
"""Takes an identity of the mesh back over the API, or gives it again. It prints nothing: see `mesh_revoke`.

1. An account is refused by its user name, so that its tokens and its certificates end, at the API server and in the mesh. A Pod is refused by
   its UID: its neighbours, and the next Pod of its name, are not. A certificate is refused by its serial number, and nothing else is.
2. A Pod that is gone is known by the ledger alone, which has the UID of the newest that got a certificate. Certificates in force of other Pods of the
   name stay good, and are told: whoever took over a Pod may have left with its key before it was made anew.
3. Which certificates are concerned is read from the ledger. It decides nothing: who may revoke need not be allowed to read it.
4. Undoing a Pod's deletes those of every Pod of that name: whoever undoes it types no UID.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import handfast_kinds, jsonpath, objects, resources, status
from handfast.cli import output, revocation
from handfast.client import api
from handfast.rules import revocation as rules
from handfast.rules import user_names
from handfast.rules.ledger import entries, segments
from handfast.rules.mesh import issued
from handfast.runtime import clock as clocks

ACCOUNT: Final = "account"
POD: Final = "pod"
SERIAL: Final = "serial"
_MAX_NAME: Final = 253
_HEX: Final = frozenset("0123456789abcdef")
_MAX_DIGITS: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Whom to refuse: an account or a Pod by namespace and name, or a certificate by its serial number, which is its name here."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def spec(self) -> dict[str, Any]:
        """What a Revocation says of it (1)."""
        if self.kind == ACCOUNT:
            return {"user": user_names.service_account_user(self.namespace, self.name)}
        if self.kind == SERIAL:
            return {"serialNumber": self.name}
        return {"pod": {"namespace": self.namespace, "name": self.name, **({"uid": self.uid} if self.uid else {})}}

    @property
    def revocation(self) -> str:
        """What its Revocation is called: a namespace has no dot, so that no two are called alike."""
        name = f"{self.kind}-{'.'.join(filter(None, (self.namespace, self.name, self.uid)))}"
        if len(name) > _MAX_NAME:
            name = f"{self.kind}-{hashlib.sha256(name.encode()).hexdigest()}"
        return name


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What is so now. `certificates` are those in force that it names, None where the ledger may not be read; `known`: whether there is one."""

    target: Target
    revocations: Sequence[str]
    revoked: bool
    changed: bool
    reason: str = ""
    expires: str = ""
    certificates: Sequence[issued.Certificate] | None = None
    known: bool | None = None
    others: Sequence[str] = ()
    # Certificates of other Pods of the same name, which stay good.
    namesakes: Sequence[issued.Certificate] = ()


def read(account: str | None, pod: str | None, serial: str | None) -> Target:
    """What was typed: exactly one of the three."""
    if sum(text is not None for text in (account, pod, serial)) != 1:
        raise output.Usage(
            "name one account, one Pod or one certificate",
            hint="as in `handfast mesh revoke shop/web`, `--pod shop/web-1` or `--serial 0a1b`",
        )
    if serial is not None:
        digits = rules.normal_serial(serial)
        if not digits or len(digits) > _MAX_DIGITS or not set(digits) <= _HEX:
            raise output.Usage(
                f'--serial: "{serial[:64]}" is no serial number', hint=f"give at most {_MAX_DIGITS} hex digits"
            )
        return Target(kind=SERIAL, name=digits)
    if pod is not None:
        return _named(POD, "--pod", pod, "shop/web-1")
    return _named(ACCOUNT, "NAMESPACE/ACCOUNT", account or "", "shop/web")


def _named(kind: str, flag: str, text: str, example: str) -> Target:
    namespace, slash, name = text.partition("/")
    if not slash or objects.dns_label(namespace) is not None or objects.dns_subdomain(name) is not None:
        raise output.Usage(
            f'{flag}: "{text[:320]}" is no namespace and name', hint=f"give them with a slash between, as in {example}"
        )
    return Target(kind=kind, namespace=namespace, name=name)


async def revoke(client: api.Client, clock: clocks.Clock, target: Target, reason: str, expires: str) -> Outcome:
    """Refuse it from now on; `reason` and `expires` may be empty."""
    ledger = await _ledger(client, clock)
    known = None
    if target.kind == POD:
        target, known = await _that_pod(client, clock, target, ledger)
    elif target.kind == ACCOUNT:
        document, may_read = await _look(client, resources.SERVICE_ACCOUNTS, target)
        known = document is not None if may_read else None
    spec, changed = await revocation.put(client, target.revocation, target.spec, reason, expires)
    concerned = None if ledger is None else ledger.of(rules.read({"spec": target.spec}).targets(), clock.now())
    return Outcome(
        target=target,
        revocations=[target.revocation],
        revoked=True,
        changed=changed,
        reason=jsonpath.text(spec, "reason"),
        expires=jsonpath.text(spec, "expires"),
        certificates=concerned,
        known=bool(concerned) if target.kind == SERIAL and concerned is not None else known,
        namesakes=_namesakes(target, ledger, clock),
    )


def _namesakes(target: Target, ledger: issued.Issued | None, clock: clocks.Clock) -> list[issued.Certificate]:
    if target.kind != POD or ledger is None:
        return []
    # 2. other Pods of the name
    rows = ledger.of([("pod", rules.pod_text(target.namespace, target.name))], clock.now())
    return [row for row in rows if row.holder.uid != target.uid]


async def undo(client: api.Client, target: Target) -> Outcome:
    """Give it again."""
    if target.kind == POD:
        return await _undo_pod(client, target)
    changed, others = await revocation.remove(client, target.revocation, target.spec)
    return Outcome(target=target, revocations=[target.revocation], revoked=False, changed=changed, others=others)


async def _undo_pod(client: api.Client, target: Target) -> Outcome:
    # 4. of every Pod of that name
    named = rules.pod_text(target.namespace, target.name)
    deleted, others = [], []
    for each in await revocation.all_of(client):
        pod, _, uid = each.pod.rpartition("/")
        if pod == named and each.name == dataclasses.replace(target, uid=uid).revocation:
            with api.MISSING_OK:
                await client.delete(revocation.KIND, each.name)
                deleted.append(each.name)
        elif named in {pod, each.pod}:
            others.append(each.name)
    return Outcome(target=target, revocations=deleted, revoked=False, changed=bool(deleted), others=others)


async def _that_pod(
    client: api.Client, clock: clocks.Clock, target: Target, ledger: issued.Issued | None
) -> tuple[Target, bool | None]:
    """The Pod with its UID (1), and whether it is there."""
    document, may_read = await _look(client, resources.PODS, target)
    uid = "" if document is None else jsonpath.text(document, "metadata", "uid")
    if not uid and ledger is not None:
        # 2. known by the ledger alone
        rows = ledger.of([("pod", rules.pod_text(target.namespace, target.name))], clock.now())
        uid = next((row.holder.uid for row in rows if row.holder.uid), "")
    if not uid:
        why = "and the ledger has no certificate in force of one" if may_read else "or you may not read it"
        raise errors.Refused(
            f"there is no Pod {target.title}, {why}",
            reason="NoSuchPod",
            hint="`handfast ledger list` shows what was issued; --serial refuses one certificate, NAMESPACE/ACCOUNT all of an account",
        )
    return dataclasses.replace(target, uid=uid), document is not None


async def _look(client: api.Client, resource: api.Addressable, target: Target) -> tuple[objects.Document | None, bool]:
    """The object's metadata, and whether it may be read."""
    try:
        return await client.find(resource, target.name, namespace=target.namespace, metadata=True), True
    except status.StatusError as error:
        if error.reason == "Forbidden":
            return None, False
        raise


async def _ledger(client: api.Client, clock: clocks.Clock) -> issued.Issued | None:
    """The certificates of the mesh that are in force; None where the ledger may not be read (3)."""
    index, now = issued.Issued(), clock.now()
    try:
        documents = await client.list(handfast_kinds.ISSUANCE_LOG)
    except status.StatusError as error:
        if error.reason in {"Forbidden", "NotFound"}:
            return None
        raise
    for segment in map(segments.read, documents):
        for stored in segment.entries if segment.chain == segments.MESH else ():
            try:
                index.add(issued.read(entries.decode_stored(stored)), now)
            except errors.Refused:
                continue
    return index
