# SPDX-License-Identifier: Apache-2.0
"""The facts of a mesh in which everything is in order, for tests that put one thing wrong."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

from handfast.pki import pem
from handfast.rules.mesh import check_facts, injector_pair, installation, issuer, services, settings, webhook
from tests.unit.pki.making import NOW

SETTINGS = settings.Settings()
MATERIAL = issuer.generate(NOW)
ANCHORS = hashlib.sha256(issuer.read_anchors(MATERIAL.anchors).to_pem()).hexdigest()
PAIR = injector_pair.make(webhook.server_name("linkerd"), SETTINGS, NOW)
STORED = injector_pair.Stored(PAIR, None, (PAIR.chain[-1],))


def secret() -> dict[str, Any]:
    return {"data": {key: value for key, value in injector_pair.data(STORED).items() if value is not None}}


def hook(**changes: Any) -> dict[str, Any]:
    document = webhook.configuration("linkerd", settings.Settings(**changes)).document
    return webhook.with_bundle(document, pem.certificates_to_pem(STORED.roots))


def config(chosen: settings.Settings = SETTINGS) -> dict[str, Any]:
    return installation.config("linkerd", chosen).document


def trust(material: issuer.Material = MATERIAL) -> tuple[dict[str, Any], dict[str, Any]]:
    anchors, signing = installation.trust("linkerd", material, generated=True)
    return anchors.document, signing.document


def facts(**changes: Any) -> check_facts.Facts:
    anchors, signing = trust()
    good = check_facts.Facts(
        namespace="linkerd",
        now=NOW,
        config=config(),
        anchors=anchors,
        signing=signing,
        webhook=hook(),
        injector_pair=secret(),
        access=[(row, row.document) for row in installation.access("linkerd", ())],
        doors={door: check_facts.Door("192.0.2.1:1", 1, True) for door in services.DOORS},
        namespaces=[namespace("shop", "enabled"), namespace("plain")],
        accounts=[account("web")],
        pods=[pod("web", proxy=True)],
    )
    return dataclasses.replace(good, **changes)


def identity(account: str) -> str:
    """The name of an account of shop in this mesh."""
    return f"{account}.shop.sa.linkerd-identity.linkerd.{SETTINGS.trust_domain}"


def namespace(name: str, value: str = "", **labels: str) -> dict[str, Any]:
    annotations = {"linkerd.io/inject": value} if value else {}
    return {"metadata": {"name": name, "annotations": annotations, "labels": labels}}


def account(name: str, space: str = "shop") -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": space, "uid": "u"}}


def pod(
    name: str, space: str = "shop", *, proxy: bool = False, phase: str = "Running", anchors: str = ANCHORS
) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i"}, *([{"name": "linkerd-proxy", "image": "p"}] if proxy else [])]
    metadata = {"name": name, "namespace": space}
    if proxy:
        metadata |= {
            "annotations": {"linkerd.io/trust-root-sha256": anchors},  # type: ignore[dict-item]
            "labels": {"linkerd.io/control-plane-ns": "linkerd"},  # type: ignore[dict-item]
        }
    return {"metadata": metadata, "spec": {"containers": containers}, "status": {"phase": phase}}
