# SPDX-License-Identifier: Apache-2.0
"""A control plane in order, as facts; tests change one of them."""

from __future__ import annotations

import base64
import dataclasses
import datetime
from typing import Any

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from handfast.bootstrap import cluster_info, jws, tokens
from handfast.pki import certificates, pem
from handfast.rules import client_ca_bundle, user_names
from handfast.rules.diagnoses import facts
from handfast.rules.nodes import overview
from tests.unit.pki import making
from tests.unit.rules.nodes import test_overview

NOW = test_overview.NOW
DAY = datetime.timedelta(days=1)
SERVER = "https://cluster.example:6443"
YEARS: dict[str, Any] = {"not_before": NOW - 100 * DAY, "not_after": NOW + 3000 * DAY}
CA = making.ca("cluster-ca", **YEARS)
OTHER_CA = making.ca("other-ca", **YEARS)
TOKEN = tokens.Token("abcdef", "0123456789abcdef")


def leaf(issuer: making.Made = CA, *, age: float = 10, lasts: float = 365) -> bytes:
    """A client certificate that was issued so many days ago."""
    begins = NOW - age * DAY
    usage = ExtendedKeyUsageOID.CLIENT_AUTH
    return making.leaf(issuer, usage, not_before=begins, not_after=begins + lasts * DAY).der


def certificate(**when: Any) -> certificates.Certificate:
    return certificates.read(leaf(**when))


def server_certificate(issuer: making.Made = CA) -> certificates.Certificate:
    """What the API server shows."""
    names = [x509.DNSName("cluster.example")]
    begins, ends = NOW - 10 * DAY, NOW + 355 * DAY
    made = making.leaf(issuer, ExtendedKeyUsageOID.SERVER_AUTH, sans=names, not_before=begins, not_after=ends)
    return certificates.read(made.der)


def pem_of(*cas: making.Made) -> bytes:
    return pem.certificates_to_pem([each.der for each in cas])


def info(ca: making.Made = CA, signatures: dict[str, str] | None = None) -> dict[str, Any]:
    """The ConfigMap cluster-info, signed by TOKEN."""
    text = kubeconfig_text(ca)
    if signatures is None:
        signatures = {TOKEN.id: jws.sign(text.encode(), TOKEN.id, TOKEN.secret)}
    return {"data": {"kubeconfig": text, **{f"jws-kubeconfig-{key}": value for key, value in signatures.items()}}}


def kubeconfig_text(ca: making.Made) -> str:
    return cluster_info.build(cluster_info.ClusterInfo((SERVER,), pem_of(ca), "1234"))


def token(spare: tokens.Token = TOKEN, *, hours: float | None = 24, usages: Any = tokens.USAGES) -> dict[str, Any]:
    until = None if hours is None else NOW + datetime.timedelta(hours=hours)
    return tokens.secret_document(spare, expiration=until, usages=usages, groups=[])


def bundle(*cas: making.Made) -> dict[str, Any]:
    return {"data": {client_ca_bundle.KEY: pem_of(*cas).decode()}}


def request(name: str = "csr-1", der: bytes | None = None, **changes: Any) -> dict[str, Any]:
    """A certificate request of the node w1, with its certificate where one is given."""
    document = test_overview.request(name, **changes)
    if der is not None:
        document["status"]["certificate"] = base64.b64encode(pem.certificates_to_pem([der])).decode()
    return document


def lease(*, seconds_ago: float = 3, holder: str = "a_1") -> dict[str, Any]:
    renewed = (NOW - datetime.timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "metadata": {"name": "handfast-controllers", "namespace": "kube-system"},
        "spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15},
    }


def reach(**changes: Any) -> facts.Reach:
    good = facts.Reach(
        server=SERVER,
        addresses=["192.0.2.1"],
        connected="192.0.2.1:6443",
        certificate=server_certificate(),
        version="v1.37.0+handfast-0.1.0",
        ahead=datetime.timedelta(seconds=1),
    )
    return dataclasses.replace(good, **changes)


def nodes(**changes: Any) -> overview.Objects:
    return test_overview.read(
        **{
            "nodes": [test_overview.node()],
            "leases": [test_overview.lease()],
            "issued": [test_overview.entry()],
            **changes,
        }
    )


def good(**changes: Any) -> facts.Facts:
    values: dict[str, Any] = {
        "now": NOW,
        "reach": reach(),
        "credential": certificate(),
        "own_ca": pem_of(CA),
        "ready": "[+]ping ok\n[+]replica ok\n[+]store ok\n",
        "lease": lease(),
        "controllers": facts.Probe("http://127.0.0.1:9990", True),
        "missing_rights": (),
        "controllers_user": user_names.CONTROLLERS,
        "cluster_info": info(),
        "stranger": 200,
        "tokens": [token()],
        "client_cas": bundle(CA),
        "webhooks": [],
        "requests": facts.Requests([request(der=leaf())]),
        "nodes": nodes(),
        "bindings": [],
        "machines": None,
        "roles": {"identity": facts.Probe("http://127.0.0.1:9991", True)},
        "pools": None,
        "bootstrap": [],
        "mesh": None,
    }
    return facts.Facts(**{**values, **changes})
