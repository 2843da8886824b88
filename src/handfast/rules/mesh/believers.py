# SPDX-License-Identifier: Apache-2.0
"""Who in the mesh believes which root, and by which issuer each has its certificate: read off Pods, MeshWorkloads and the ledger.

It looks nothing up, and says nothing of what should be: `anchor_rotation` does.

1. A Pod counts that has not ended, and has an identity: by the variables of its proxy, by its MeshWorkload, or by a certificate in force. One of
   another control plane does not.
2. A Pod whose agent reports (the MeshWorkload has its namespace, its name and its UID: who may write such objects elsewhere speaks for nobody here) believes what the agent has acknowledged, by the control plane's own record.
3. Any other Pod believes the anchors of its variables, for as long as it lives: a stock proxy learns no others, nor does an agent that has not
   reported so far. Where they cannot be read, nothing is known of it, and it is taken to believe nobody.
4. The certificate of an agent is the one that it reports. Beside it there may be one with a key of its own, a new one each time (`proxy.credentials`): the
   newest of another key counts, too, unless it is older than the reported one's first. Then it is that of an earlier start.
5. Of any other Pod it is the newest in the ledger that is old enough to have arrived: one whose answer was lost is asked for again.
6. A certificate of no Pod counts until it ends, whoever has it. Those of the control plane's own accounts do not: with other anchors they are replaced at
   once (`mesh.own_certificate`, `mesh.identity.own_pair`).
7. Certificates of Pods that are gone are nobody's.
"""

from __future__ import annotations

import collections
import datetime
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from handfast.api import jsonpath, objects
from handfast.rules import user_names
from handfast.rules.ledger import entries
from handfast.rules.mesh import certify, control_plane, holders, injection, proxy_environment

# 5. how long an answer may be on its way, the next attempt included
RECEIPT_TIME: Final = datetime.timedelta(minutes=1)
_ENDED: Final = frozenset({"Succeeded", "Failed"})


class Kind(enum.StrEnum):
    """By what it is known whom a Pod believes."""

    AGENT = "agent"
    STOCK = "stock"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Believer:
    """A Pod, `NAMESPACE/NAME`. Roots are SHA-256 in hex: those that it believes, and those that its variables have.

    `signers` are the tags of who signed what it has in force (`certify.issuer_tag`; empty: nobody knows), and `until` is when the last of it ends.
    """

    pod: str
    kind: Kind
    roots: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset()
    signers: frozenset[str] = frozenset()
    until: datetime.datetime | None = None


class Loose(msgspec.Struct, frozen=True):
    """A certificate of no Pod: whose, by whom it was signed, and its end (6)."""

    name: str
    signer: str
    until: datetime.datetime


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """All of them, by name."""

    believers: tuple[Believer, ...] = ()
    loose: tuple[Loose, ...] = ()


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is there: Pods and MeshWorkloads as documents, the ledger, and the namespace of the control plane."""

    pods: Sequence[objects.Document]
    workloads: Sequence[objects.Document]
    ledger: Sequence[entries.Entry]
    namespace: str = control_plane.NAMESPACE


def read(facts: Facts, now: datetime.datetime) -> Known:
    """Who believes whom."""
    ours = {user_names.service_account_user(facts.namespace, name) for name in control_plane.ACCOUNTS}
    by_uid: dict[str, list[entries.Entry]] = {}
    by_name: dict[tuple[str, str], list[entries.Entry]] = {}
    loose = []
    for entry in sorted(facts.ledger, key=lambda entry: entry.issued_at):
        holder = holders.read(entry.request)
        if holder.uid:
            by_uid.setdefault(holder.uid, []).append(entry)
        elif holder.pod:
            by_name.setdefault((holder.namespace, holder.pod), []).append(entry)
        elif entry.not_after > now and entry.requester not in ours:
            # 6. until it ends
            loose.append(Loose(entry.requester, certify.issuer_of(entry), entry.not_after))
    # 2. of its namespace, name and UID
    reported = {(*_key(row), _owner(row)): row for row in facts.workloads}
    roots = _Roots()
    believers = []
    for pod in facts.pods:
        # 7. what is left in `by_uid` is nobody's
        held = [*by_name.get(_key(pod), ()), *by_uid.get(_uid(pod), ())]
        believer = _believer(pod, reported.get((*_key(pod), _uid(pod))), held, roots, now)
        if believer is not None and _is_of(pod, facts.namespace):
            believers.append(believer)
    return Known(
        believers=tuple(sorted(believers, key=lambda each: each.pod)),
        loose=tuple(sorted(loose, key=lambda each: (each.name, each.until))),
    )


def _believer(
    pod: objects.Document,
    workload: objects.Document | None,
    held: Sequence[entries.Entry],
    roots: _Roots,
    now: datetime.datetime,
) -> Believer | None:
    variables = _variables(pod)
    # 1. has not ended, and has an identity
    if jsonpath.text(pod, "status", "phase") in _ENDED:
        return None
    if not variables and workload is None and not any(entry.not_after > now for entry in held):
        return None
    own = roots.of(variables)
    name = "/".join(_key(pod))
    if workload is None:
        # 3. what its variables have, and 5. the newest certificate
        in_use = _arrived(held, now)
        kind, believed = (Kind.STOCK if own else Kind.UNKNOWN), own
    else:
        # 2. what was acknowledged, and 4. what it reports
        in_use = _reported(workload, held, now)
        kind, believed = Kind.AGENT, frozenset(jsonpath.texts(workload, "status", "anchors"))
    return Believer(
        pod=name,
        kind=kind,
        roots=believed,
        variables=own,
        signers=frozenset(map(certify.issuer_of, in_use)),
        until=max((entry.not_after for entry in in_use), default=None),
    )


def _arrived(held: Sequence[entries.Entry], now: datetime.datetime) -> list[entries.Entry]:
    """The newest that is old enough, or the first (5)."""
    in_force = [entry for entry in held if entry.not_after > now]
    old_enough = [entry for entry in in_force if now - entry.issued_at >= RECEIPT_TIME]
    return (old_enough or in_force[:1])[-1:]


def _reported(workload: objects.Document, held: Sequence[entries.Entry], now: datetime.datetime) -> list[entries.Entry]:
    """The one that is reported, and the newest beside it (4)."""
    shown = jsonpath.text(workload, "status", "certificate", "sha256")
    own = next((entry for entry in held if entry.certificate == shown), None)
    if own is None:
        return _arrived(held, now)
    since = min(entry.issued_at for entry in held if entry.key_fingerprint == own.key_fingerprint)
    others = [entry for entry in held if entry.issued_at >= since and entry.key_fingerprint != own.key_fingerprint]
    return [entry for entry in (own, *others[-1:]) if entry.not_after > now]


class _Roots:
    """The roots of variables: many Pods have the same ones."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, str], ...], frozenset[str]] = {}

    def of(self, variables: Mapping[str, str]) -> frozenset[str]:
        key = tuple(sorted(variables.items()))
        if key not in self._known:
            self._known[key] = _read(variables)
        return self._known[key]


def _read(variables: Mapping[str, str]) -> frozenset[str]:
    try:
        return frozenset(anchor.fingerprint for anchor in proxy_environment.read_anchors(variables).anchors)
    except proxy_environment.Invalid:
        return frozenset()


def _variables(pod: objects.Document) -> dict[str, str]:
    """The variables for anchors that a container of the Pod has."""
    return {
        row["name"]: str(row.get("value") or "")
        for place in ("initContainers", "containers")
        for container in jsonpath.mappings(pod, "spec", place)
        for row in jsonpath.mappings(container, "env")
        if row.get("name") in proxy_environment.ANCHORS_SPELLINGS
    }


def _is_of(pod: objects.Document, namespace: str) -> bool:
    return jsonpath.text(pod, "metadata", "labels", injection.CONTROL_PLANE) in {"", namespace}


def _owner(workload: objects.Document) -> str:
    return next((jsonpath.text(row, "uid") for row in jsonpath.mappings(workload, "metadata", "ownerReferences")), "")


def _key(pod: objects.Document) -> tuple[str, str]:
    return jsonpath.text(pod, "metadata", "namespace"), jsonpath.text(pod, "metadata", "name")


def _uid(pod: objects.Document) -> str:
    return jsonpath.text(pod, "metadata", "uid")


def counted(known: Known) -> dict[str, int]:
    """How many have a certificate in force of each issuer, by its tag."""
    tags = [tag for each in known.believers for tag in each.signers]
    return dict(collections.Counter([*tags, *(each.signer for each in known.loose)]))
