# SPDX-License-Identifier: Apache-2.0
"""What new requests hold, and each change of conditions and certificate by each door. Who may is tested elsewhere."""

from __future__ import annotations

import base64
import datetime
import functools
from typing import Any

import pytest

from handfast.api import field_errors as fields
from handfast.api import objects
from handfast.pki import authority, keys, names, pem, requests
from handfast.rules.certificates import state

NOW = datetime.datetime(2026, 6, 1, 12, 0, tzinfo=datetime.UTC)
EXCLUSIVE = "Approved and Denied conditions are mutually exclusive"
ISSUED = "status.certificate: Forbidden: updates may not modify existing certificate content"
DATA = 'Invalid value: "<certificate data>"'


def said(causes: fields.Causes) -> list[str]:
    return [f"{cause.field}: {cause.message}" for cause in causes]


def condition(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "status": "True", "reason": "Test", **more}


def csr(*kinds: str, certificate: str = "") -> objects.Document:
    status: dict[str, Any] = {"conditions": [condition(kind) for kind in kinds]}
    return {"metadata": {"name": "csr"}, "status": {**status, "certificate": certificate}}


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


@functools.cache
def request() -> bytes:
    return requests.build(names.Subject(common_name="jane"), names.Sans(), keys.generate(keys.Kind.P256))


@functools.cache
def certificate() -> bytes:
    return authority.self_signed_ca(names.Subject(common_name="ca"), keys.generate(keys.Kind.P256), NOW).pem


def forged() -> bytes:
    """The request with the last byte of its signature changed."""
    der = bytearray(pem.one(request(), pem.CERTIFICATE_REQUEST))
    der[-1] ^= 1
    return pem.encode(pem.CERTIFICATE_REQUEST, bytes(der))


@pytest.mark.parametrize(
    "content, why",
    [
        pytest.param(lambda: encoded(request()), "", id="a request"),
        pytest.param(lambda: "", "expected exactly one PEM block", id="empty"),
        pytest.param(lambda: "%%", "spec.request is not base64", id="not base64"),
        pytest.param(lambda: encoded(b"junk"), "text outside a block", id="not PEM"),
        pytest.param(
            lambda: encoded(pem.encode(pem.CERTIFICATE_REQUEST, b"junk")), "not a PKCS#10 certificate", id="not PKCS#10"
        ),
        pytest.param(lambda: encoded(certificate()), "PEM block type must be CERTIFICATE REQUEST", id="another block"),
        pytest.param(lambda: encoded(forged()), "not signed by the key it carries", id="another's key"),
    ],
)
def test_a_new_request_is_readable_and_proves_its_key(content: Any, why: str) -> None:
    found = said(state.create({"spec": {"request": content()}}))
    assert len(found) == bool(why)
    assert all(text.startswith('spec.request: Invalid value: "<request data>": ') and why in text for text in found)


def adds(*kinds: str) -> list[str]:
    return [f'status.conditions: Forbidden: updates may not add a condition of type "{kind}"' for kind in kinds]


def removes(*kinds: str) -> list[str]:
    return [f'status.conditions: Forbidden: updates may not remove a condition of type "{kind}"' for kind in kinds]


def exclusive(index: int, kind: str) -> list[str]:
    return [f'status.conditions[{index}].type: Invalid value: "{kind}": {EXCLUSIVE}']


def twice(index: int, kind: str) -> list[str]:
    return [f'status.conditions[{index}].type: Duplicate value: "{kind}"']


# Conditions before, conditions after, what /approval says, what /status says.
CHANGES = [
    pytest.param((), (), [], [], id="nothing"),
    pytest.param((), ("Approved",), [], adds("Approved"), id="approve"),
    pytest.param((), ("Denied",), [], adds("Denied"), id="deny"),
    pytest.param((), ("Failed",), [], [], id="fail"),
    pytest.param((), ("Other",), [], [], id="another condition"),
    pytest.param(("Other",), (), [], [], id="another condition goes"),
    pytest.param(("Approved",), ("Approved",), [], [], id="approved as before"),
    pytest.param(("Approved",), ("Approved", "Failed"), [], [], id="approved, then failed"),
    pytest.param(("Failed",), ("Failed", "Approved"), [], adds("Approved"), id="failed, then approved"),
    pytest.param(("Approved",), ("Failed", "Approved"), [], [], id="another order"),
    pytest.param(("Approved",), (), removes("Approved"), removes("Approved"), id="withdraw an approval"),
    pytest.param(("Denied",), (), removes("Denied"), removes("Denied"), id="withdraw a denial"),
    pytest.param(("Failed",), (), removes("Failed"), removes("Failed"), id="withdraw a failure"),
    pytest.param(
        ("Denied",), ("Approved",), removes("Denied"), [*removes("Denied"), *adds("Approved")], id="denied to approved"
    ),
    pytest.param(
        ("Approved",), ("Denied",), removes("Approved"), [*removes("Approved"), *adds("Denied")], id="the other way"
    ),
    pytest.param(
        (),
        ("Approved", "Denied"),
        exclusive(1, "Denied"),
        [*exclusive(1, "Denied"), *adds("Approved", "Denied")],
        id="approved and denied",
    ),
    pytest.param(
        ("Denied",),
        ("Denied", "Approved"),
        exclusive(1, "Approved"),
        [*exclusive(1, "Approved"), *adds("Approved")],
        id="denied and approved",
    ),
    pytest.param((), ("Failed", "Failed"), twice(1, "Failed"), twice(1, "Failed"), id="failed twice"),
    pytest.param(
        ("Approved",),
        ("Approved", "Approved"),
        twice(1, "Approved"),
        [*twice(1, "Approved"), *adds("Approved")],
        id="approved twice",
    ),
    pytest.param((), ("approved", "APPROVED"), [], [], id="words that only look alike"),
    pytest.param(("Approved", "Denied"), ("Approved", "Denied"), [], [], id="stored before there were rules"),
]


@pytest.mark.parametrize("before, after, approval, status", CHANGES)
def test_approval_keeps_what_lasts_and_never_both_approves_and_denies(
    before: Any, after: Any, approval: list[str], status: list[str]
) -> None:
    assert said(state.approval(csr(*after), csr(*before))) == approval


@pytest.mark.parametrize("before, after, approval, status", CHANGES)
def test_a_signer_neither_adds_nor_changes_an_approval(
    before: Any, after: Any, approval: list[str], status: list[str]
) -> None:
    assert said(state.status(csr(*after), csr(*before))) == status


@pytest.mark.parametrize("kind", ["Approved", "Denied", "Failed"])
def test_the_text_of_a_condition(kind: str) -> None:
    """An approver may find better words for it; a signer only for a failure."""
    new = {"status": {"conditions": [condition(kind, reason="Better")]}}
    assert said(state.approval(new, csr(kind))) == []
    wrong = [f'status.conditions: Forbidden: updates may not modify a condition of type "{kind}"']
    assert said(state.status(new, csr(kind))) == ([] if kind == "Failed" else wrong)
    same = {"status": {"conditions": [condition(kind, lastUpdateTime=None)]}}
    assert said(state.status(same, csr(kind))) == []


ONLY_TRUE = 'Unsupported value: "{}": supported values: "True"'
ANY = 'Unsupported value: "{}": supported values: "False", "True", "Unknown"'


@pytest.mark.parametrize(
    "kind, value, causes",
    [
        *(
            pytest.param(kind, value, [f"status: {ONLY_TRUE.format(value)}"], id=f"{kind}: {value}")
            for kind in ("Approved", "Denied", "Failed")
            for value in ("False", "Unknown", "true")
        ),
        pytest.param("Approved", "", ["status: Required value"], id="Approved: empty"),
        pytest.param("Failed", None, ["status: Required value"], id="Failed: none"),
        pytest.param("Other", "False", [], id="another: False"),
        pytest.param("Other", "Unknown", [], id="another: Unknown"),
        pytest.param("Other", "yes", [f"status: {ANY.format('yes')}"], id="another: an odd one"),
        pytest.param("", "True", ["type: Required value"], id="no type"),
        pytest.param("", "", ["type: Required value", "status: Required value"], id="empty"),
    ],
)
def test_a_condition_has_a_type_and_a_status_that_is_allowed(kind: str, value: Any, causes: list[str]) -> None:
    new = {"status": {"conditions": [{"type": kind, "status": value}]}}
    expected = [f"status.conditions[0].{cause}" for cause in causes]
    assert said(state.approval(new, csr())) == expected
    found = said(state.status(new, None))
    assert found == [*expected, *(adds(kind) if kind in {"Approved", "Denied"} else [])]


def key() -> bytes:
    return pem.encode(pem.PRIVATE_KEY, b"secret")


@pytest.mark.parametrize(
    "before, after, cause",
    [
        pytest.param(lambda: "", lambda: encoded(certificate()), "", id="issue"),
        pytest.param(lambda: "", lambda: encoded(certificate() * 2), "", id="issue, with a chain"),
        pytest.param(lambda: "", lambda: encoded(b"CN=ca\n" + certificate()), "", id="a comment before it"),
        pytest.param(
            lambda: encoded(certificate()), lambda: encoded(certificate()), "", id="the one that is there already"
        ),
        pytest.param(lambda: "anything", lambda: "anything", "", id="stored before there were rules"),
        pytest.param(lambda: "anything", lambda: encoded(certificate()), ISSUED, id="replace"),
        pytest.param(lambda: encoded(certificate()), lambda: encoded(certificate() * 2), ISSUED, id="add to it"),
        pytest.param(lambda: encoded(certificate()), lambda: "", ISSUED, id="remove"),
        pytest.param(lambda: "", lambda: "%%", f"{DATA}: not base64", id="not base64"),
        pytest.param(lambda: "", lambda: "é", f"{DATA}: not base64", id="not ASCII"),
        pytest.param(lambda: "", lambda: encoded(b"junk"), f"{DATA}: no CERTIFICATE block", id="junk"),
        pytest.param(
            lambda: "",
            lambda: encoded(certificate() + key()),
            "PEM block 2: expected CERTIFICATE, found PRIVATE KEY",
            id="a key beside it",
        ),
        pytest.param(
            lambda: "",
            lambda: encoded(certificate().replace(b"-----\n", b"-----\na: b\n", 1)),
            "headers are not accepted",
            id="headers",
        ),
        pytest.param(
            lambda: "",
            lambda: encoded(certificate() + pem.encode(pem.CERTIFICATE, b"junk")),
            f"{DATA}: not a certificate in DER",
            id="a block that is none",
        ),
    ],
)
def test_a_certificate_can_be_read_and_stays_once_it_is_there(before: Any, after: Any, cause: str) -> None:
    found = said(state.status(csr(certificate=after()), csr(certificate=before())))
    assert len(found) == bool(cause)
    assert all(text.startswith("status.certificate: ") and cause in text for text in found), found
