# SPDX-License-Identifier: Apache-2.0
"""Each of the rows looks at its own writes. What is decided is tested with the rules."""

from __future__ import annotations

import base64
import functools
from typing import Any

import pytest

from handfast.api import objects, status
from handfast.apiserver.admission import certificates, plugin
from handfast.pki import authority, keys, names, requests
from handfast.rules import access, decision
from tests.unit.apiserver import admission_world

CSRS = ("certificates.k8s.io", "certificatesigningrequests")
CLIENT = "kubernetes.io/kube-apiserver-client"
FORBIDDEN = 'certificatesigningrequests.certificates.k8s.io "csr" is forbidden: '


def csr(**status_: Any) -> objects.Document:
    return {"metadata": {"name": "csr"}, "spec": {"signerName": CLIENT, "request": ""}, "status": status_}


@functools.cache
def certificate() -> str:
    key = keys.generate(keys.Kind.P256)
    made = authority.self_signed_ca(names.Subject(common_name="ca"), key, now=admission_world.NOW)
    return base64.b64encode(made.pem).decode()


def of_masters() -> objects.Document:
    subject = names.Subject(common_name="jane", organizations=("system:masters",))
    request = requests.build(subject, names.Sans(), keys.generate(keys.Kind.P256))
    return {
        "metadata": {"name": "csr"},
        "spec": {"signerName": CLIENT, "request": base64.b64encode(request).decode()},
    }


async def run(operation: str, world: admission_world.World, **facts: Any) -> None:
    chain = plugin.Chain(certificates.ROWS, world.context)
    resource = facts.pop("resource", CSRS)
    await chain.run(admission_world.write_of(operation, resource, name="csr", user=admission_world.JANE, **facts))


@pytest.mark.parametrize(
    "operation, facts, why",
    [
        pytest.param(
            plugin.UPDATE,
            {"subresource": "approval", "document": csr(), "old": csr()},
            f'user not permitted to approve requests with signerName "{CLIENT}"',
            id="approval",
        ),
        pytest.param(
            plugin.UPDATE,
            {"subresource": "status", "document": csr(certificate=certificate()), "old": csr()},
            f'user not permitted to sign requests with signerName "{CLIENT}"',
            id="certificate",
        ),
        pytest.param(
            plugin.CREATE,
            {"document": of_masters()},
            f"use of {CLIENT} signer with system:masters group is not allowed",
            id="administrators",
        ),
    ],
)
async def test_who_may_not_is_refused_with_403(operation: str, facts: Any, why: str) -> None:
    with pytest.raises(status.StatusError) as refused:
        await run(operation, admission_world.World(), **facts)
    assert (refused.value.code, refused.value.message) == (403, FORBIDDEN + why)


APPROVED = csr(conditions=[{"type": "Approved", "status": "True"}])
DENIED = csr(conditions=[{"type": "Denied", "status": "True"}])


@pytest.mark.parametrize(
    "operation, facts, why",
    [
        pytest.param(
            plugin.CREATE,
            {"document": {"metadata": {"name": "csr"}, "spec": {"signerName": "a.b/c", "request": "%%"}}},
            'spec.request: Invalid value: "<request data>": spec.request is not base64',
            id="a request that is none, to any signer",
        ),
        pytest.param(
            plugin.UPDATE,
            {"subresource": "approval", "document": APPROVED, "old": DENIED},
            'status.conditions: Forbidden: updates may not remove a condition of type "Denied"',
            id="a denial undone",
        ),
        pytest.param(
            plugin.UPDATE,
            {"subresource": "status", "document": APPROVED, "old": csr()},
            'status.conditions: Forbidden: updates may not add a condition of type "Approved"',
            id="approved by the signer",
        ),
    ],
)
async def test_what_is_invalid_is_refused_whoever_asks(operation: str, facts: Any, why: str) -> None:
    """Whoever asks: this authorizer would permit it."""
    permits = admission_world.World(lambda _: decision.Approve("Test", "yes", "test"))
    with pytest.raises(status.StatusError) as refused:
        await run(operation, permits, **facts)
    expected = f'CertificateSigningRequest.certificates.k8s.io "csr" is invalid: {why}'
    assert (refused.value.code, refused.value.message) == (422, expected)


@pytest.mark.parametrize(
    "operation, facts",
    [
        pytest.param(plugin.UPDATE, {"document": csr(certificate="Zm9v"), "old": csr()}, id="the request itself"),
        pytest.param(
            plugin.UPDATE, {"subresource": "status", "document": csr(), "old": csr()}, id="an unchanged status"
        ),
        pytest.param(plugin.CREATE, {"subresource": "status", "document": of_masters()}, id="not a new request"),
        pytest.param(plugin.DELETE, {"old": of_masters()}, id="a deletion"),
        pytest.param(plugin.UPDATE, {"resource": ("", "pods"), "subresource": "approval"}, id="another resource"),
    ],
)
async def test_not_looked_at(operation: str, facts: Any) -> None:
    def never(attributes: access.Attributes) -> decision.Decision:
        raise AssertionError(f"the authorizer was asked: {attributes}")

    await run(operation, admission_world.World(never), **facts)


@pytest.mark.parametrize(("subresource", "verb"), [("approval", "approve"), ("status", "sign")])
async def test_the_verb_on_the_signer_permits_it(subresource: str, verb: str) -> None:
    asked: list[access.Attributes] = []

    def decide(attributes: access.Attributes) -> decision.Decision:
        asked.append(attributes)
        return decision.Approve("Test", "yes", "test")

    new = csr(certificate=certificate())
    await run(plugin.UPDATE, admission_world.World(decide), subresource=subresource, document=new, old=csr())
    assert [(one.user, one.groups, one.verb, one.name) for one in asked] == [
        ("jane", admission_world.JANE.groups, verb, CLIENT)
    ]


def test_validation_comes_before_the_rows_with_kubernetes_names() -> None:
    assert [row.name for row in certificates.ROWS] == [
        "CertificateState",
        "CertificateApproval",
        "CertificateSigning",
        "CertificateSubjectRestriction",
    ]
