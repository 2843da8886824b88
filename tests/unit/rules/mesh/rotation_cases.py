# SPDX-License-Identifier: Apache-2.0
"""A mesh whose root is replaced: both sides, what is stored at each step, and Pods that believe one root or both."""

from __future__ import annotations

import base64
import dataclasses
import datetime
from typing import Any

from handfast.pki import bundles
from handfast.rules import trust_rotation
from handfast.rules.ledger import entries
from handfast.rules.mesh import anchor_rotation, believers, certify, issuer, names
from tests.unit.rules.mesh import issued_cases

NOW, HOUR = issued_cases.NOW, issued_cases.HOUR
LATER = NOW + HOUR
MESH = names.Mesh("cluster.local")
OLD, NEW = issuer.generate(NOW), issuer.generate(NOW)
OLD_ROOT, NEW_ROOT = (issuer.read_anchors(side.anchors).anchors[0].fingerprint for side in (OLD, NEW))
OLD_SIGNER, NEW_SIGNER = (anchor_rotation.signer_of(side) for side in (OLD, NEW))
BOTH = issuer.read_anchors(OLD.anchors + NEW.anchors)
Step = trust_rotation.Step


def record(there: issuer.Material = OLD, new: issuer.Material = NEW) -> anchor_rotation.Record:
    """One that has just begun."""
    return anchor_rotation.begun(there, new, MESH, NOW)


def after(*steps: Step, undone: bool = False) -> anchor_rotation.Record:
    """Once these are done."""
    made = record()
    for step in steps:
        state = trust_rotation.finish(trust_rotation.begin(made.state, step, NOW), step, NOW)
        made = dataclasses.replace(made, state=state)
    return anchor_rotation.undone(made) if undone else made


def stored(anchors: bundles.TrustBundle = BOTH, signer: str = OLD_SIGNER) -> anchor_rotation.Stored:
    return anchor_rotation.Stored(anchors, signer)


def agent(pod: str = "shop/web-1", *roots: str, signer: str = OLD_SIGNER) -> believers.Believer:
    return believers.Believer(
        pod=pod,
        kind=believers.Kind.AGENT,
        roots=frozenset(roots),
        signers=frozenset({anchor_rotation.tag_of(signer)}),
        until=NOW + 24 * HOUR,
    )


def stock(pod: str = "shop/old-1", *roots: str, signer: str = OLD_SIGNER) -> believers.Believer:
    return dataclasses.replace(agent(pod, *roots, signer=signer), kind=believers.Kind.STOCK)


def known(*rows: believers.Believer, loose: tuple[believers.Loose, ...] = ()) -> believers.Known:
    return believers.Known(believers=rows, loose=loose)


def pod(
    name: str = "web-1", *, anchors: bytes = b"", uid: str = "", phase: str = "Running", plane: str = "linkerd"
) -> dict[str, Any]:
    env = [{"name": "LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS_BLOB", "value": base64.b64encode(anchors).decode()}]
    return {
        "metadata": {
            "namespace": "shop",
            "name": name,
            "uid": uid or f"u-{name}",
            "labels": {"linkerd.io/control-plane-ns": plane},
        },
        "spec": {"initContainers": [{"name": "linkerd-proxy", "env": env if anchors else []}], "containers": [{}]},
        "status": {"phase": phase},
    }


def workload(name: str = "web-1", *roots: str, certificate: str = "", uid: str = "") -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid or f"u-{name}"}
    status = {"anchors": list(roots), "certificate": {"sha256": certificate}}
    return {"metadata": {"namespace": "shop", "name": name, "ownerReferences": [owner]}, "status": status}


def entry(
    name: str = "web-1",
    *,
    number: int = 1,
    ago: datetime.timedelta = HOUR,
    lives: datetime.timedelta = HOUR,
    signer: str = OLD_SIGNER,
    key: str = "k",
    request: str | None = None,
) -> entries.Entry:
    """A certificate of a Pod, issued some time ago, that lives so much longer."""
    place = f"shop/{name}/u-{name}/n1" if request is None else request
    made = issued_cases.entry(number=number, pod=place, lives=lives, key=issued_cases.sha(key))
    rule = f"{certify.RULE}: issuer {anchor_rotation.tag_of(signer)}" if signer else certify.RULE
    return dataclasses.replace(made, issued_at=NOW - ago, rule=rule)
