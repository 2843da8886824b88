# SPDX-License-Identifier: Apache-2.0
"""The model of a CertificateSigningRequest: what holds of it, and that it goes back whole."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from handfast.api import signer_names, signing_requests

STORED: dict[str, Any] = {
    "metadata": {
        "name": "x",
        "uid": "u",
        "resourceVersion": "7",
        "creationTimestamp": "2030-01-01T00:00:00Z",
        "generateName": "x-",
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
        "finalizers": ["example.com/f"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "1"}],
    },
    "spec": {
        "request": "cQ==",
        "signerName": signer_names.KUBELET_CLIENT,
        "expirationSeconds": 600,
        "usages": ["client auth"],
        "username": "joe",
        "uid": "7",
        "groups": ["g"],
        "extra": {"k": ["v"]},
    },
    "status": {
        "conditions": [
            {
                "type": "Approved",
                "status": "True",
                "reason": "R",
                "message": "m",
                "lastUpdateTime": "2030-01-01T00:00:01Z",
                "lastTransitionTime": "2030-01-01T00:00:01Z",
            }
        ]
    },
}
WAITING = signing_requests.condition("Waiting", "Why", "text", "2030-01-02T00:00:00Z")


def request(*conditions: dict[str, Any], certificate: str | None = None) -> signing_requests.Request:
    document = {"metadata": {"name": "x"}, "status": {"conditions": list(conditions), "certificate": certificate}}
    return msgspec.convert(document, signing_requests.Request)


def condition(kind: str, status: str | None = "True") -> dict[str, Any]:
    return {"type": kind} if status is None else {"type": kind, "status": status}


def test_what_is_decoded_is_whole():
    assert signing_requests.DECODER.decode(msgspec.json.encode(STORED)).document() == STORED


def test_without_metadata_it_is_no_request():
    with pytest.raises(msgspec.ValidationError):
        signing_requests.DECODER.decode(b"{}")


@pytest.mark.parametrize(
    ("item", "is_open"),
    [
        pytest.param(request(), True, id="new"),
        pytest.param(signing_requests.Request(signing_requests.Meta()), True, id="without a status"),
        pytest.param(request(condition("Approved")), True, id="approved"),
        pytest.param(request(condition("Other")), True, id="another condition"),
        pytest.param(request(condition("Denied")), False, id="denied"),
        pytest.param(request(condition("Approved"), condition("Failed")), False, id="failed"),
        pytest.param(request(condition("Failed", None)), False, id="failed, without a status"),
        pytest.param(request(condition("Failed", "False")), True, id="not failed"),
        pytest.param(request(condition("Approved"), certificate="c"), False, id="issued"),
    ],
)
def test_a_request_is_open_until_it_is_issued_denied_or_failed(item: signing_requests.Request, is_open: bool):
    assert item.is_open is is_open


@pytest.mark.parametrize(
    ("status", "holds"), [("True", True), (None, True), ("", True), ("False", False), ("Unknown", False)]
)
def test_a_condition_counts_only_where_it_holds(status: str | None, holds: bool):
    item = request(condition("Other"), condition("Approved", status))
    assert (item.condition(signing_requests.APPROVED) is not None) is holds
    assert item.condition("Nothing") is None


def test_an_update_takes_nothing_away():
    item = msgspec.convert(STORED, signing_requests.Request)
    document = msgspec.to_builtins(item.updated(added=WAITING, certificate="c"))
    conditions = [*STORED["status"]["conditions"], msgspec.to_builtins(WAITING)]
    head = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
    assert document == {**STORED, **head, "status": {"conditions": conditions, "certificate": "c"}}


def test_an_update_leaves_out_the_conditions_of_one_type_and_keeps_the_certificate():
    item = request(condition("Waiting"), condition("Approved"), certificate="c")
    update = item.updated(without="Waiting")
    assert [row.type for row in update.status.conditions or ()] == ["Approved"]
    assert update.status.certificate == "c"
    assert len(item.updated().status.conditions or ()) == 2


def test_a_new_request_says_only_what_is_asked_for():
    spec = signing_requests.Spec(request="cQ==", signer_name="example.com/s", usages=["client auth"])
    assert signing_requests.new("x", spec) == {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "x"},
        "spec": {"request": "cQ==", "signerName": "example.com/s", "usages": ["client auth"]},
    }


def test_every_signer_is_of_the_domain():
    assert {name.partition("/")[0] for name in signer_names.SIGNERS} == {signer_names.DOMAIN}
