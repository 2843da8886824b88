# SPDX-License-Identifier: Apache-2.0
"""Whom a mesh trusts, who signs, and who depends on which root, for people: what `handfast mesh anchors show` prints. It looks nothing up.

1. A root signs if the issuer leads to it. What cannot be judged, such as an issuer that is not believed, signs nothing.
2. Who depends on a root: whoever has a certificate in force whose issuer leads to it. Of issuers that are neither in use nor in a rotation nobody knows the root.
3. Who believes a root: agents that have acknowledged it, and Pods without an agent that have it in their variables.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import msgspec

from handfast import errors
from handfast.pki import certificates
from handfast.rules.mesh import anchor_rotation, believers, issuer, names


class Root(msgspec.Struct, frozen=True, kw_only=True):
    """One root, and who has to do with it."""

    fingerprint: str
    subject: str
    until: datetime.datetime
    signs: bool
    agents: tuple[str, ...]
    stock: tuple[str, ...]
    holders: int


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All of it. `signer` is the SHA-256 of the issuer's certificate, and `problem` why it signs nothing.

    `agents` and `stock` are Pods with an agent, and without; `unknown` is how many hold a certificate whose root nobody knows.
    """

    roots: tuple[Root, ...]
    signer: str
    signs_until: datetime.datetime
    problem: str
    agents: tuple[str, ...]
    stock: tuple[str, ...]
    unknown: int
    rotation: anchor_rotation.Record | None


def view(
    material: issuer.Material,
    record: anchor_rotation.Record | None,
    known: believers.Known,
    mesh: names.Mesh,
    now: datetime.datetime,
) -> View:
    """What is there; refused where the anchors cannot be read."""
    bundle = issuer.read_anchors(material.anchors)
    problem, until, roots = "", now, dict[str, str]()
    for each in (material, *((record.old, record.new) if record else ())):
        tag = anchor_rotation.tag_of(anchor_rotation.signer_of(each))
        try:
            loaded = issuer.load(issuer.Material(each.certificate, each.key, material.anchors), mesh, now)
        except errors.Refused as refused:
            # 1. signs nothing
            problem = refused.message if each is material else problem
            continue
        roots[tag] = loaded.anchor
        until = loaded.ends if each is material else until
    signer = anchor_rotation.signer_of(material)
    counts = believers.counted(known)
    return View(
        roots=tuple(_root(anchor, roots, anchor_rotation.tag_of(signer), counts, known) for anchor in bundle.anchors),
        signer=signer,
        signs_until=until,
        problem=problem,
        agents=_pods(known, agent=True),
        stock=_pods(known, agent=False),
        # 2. of these nobody knows
        unknown=sum(count for tag, count in counts.items() if tag not in roots),
        rotation=record,
    )


def _root(
    anchor: certificates.Certificate,
    roots: dict[str, str],
    signer: str,
    counts: dict[str, int],
    known: believers.Known,
) -> Root:
    return Root(
        fingerprint=anchor.fingerprint,
        subject=str(anchor.subject),
        until=anchor.not_after,
        signs=roots.get(signer) == anchor.fingerprint,
        # 3. acknowledged, or in the variables
        agents=_pods(known, agent=True, root=anchor.fingerprint),
        stock=_pods(known, agent=False, root=anchor.fingerprint),
        holders=sum(counts.get(tag, 0) for tag, root in roots.items() if root == anchor.fingerprint),
    )


def _pods(known: believers.Known, *, agent: bool, root: str = "") -> tuple[str, ...]:
    return tuple(
        each.pod
        for each in known.believers
        if (each.kind is believers.Kind.AGENT) is agent and (not root or root in each.roots)
    )
