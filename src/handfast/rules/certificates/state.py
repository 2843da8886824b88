# SPDX-License-Identifier: Apache-2.0
"""What a new certificate request must hold, and how its conditions and its certificate may change afterwards.

`certificates.admission` decides who may approve or sign, and `api.validation.access` looks at the fields of the spec. The
strategies see to it that a write to the request itself changes no status, and one to /approval no certificate.

A new request:
1. The request can be read and is signed by the key that it carries (`pki.requests`).
A write to /approval or /status, of what it changes:
2. Every condition has a type and a status; that of Approved, Denied and Failed is True. No type occurs twice.
3. Approved and Denied exclude each other.
4. Approved, Denied and Failed stay once they are there.
A write to /status:
5. It neither adds nor changes Approved and Denied: only the approver writes these.
6. The certificate is one or more PEM blocks CERTIFICATE that can be read, and stays once it is there.

What was stored before and stays as it was is not judged anew: finalizers must always come off.

| who | holding | tries | stopped by | shown in tests/unit/rules/certificates/test_state.py |
|---|---|---|---|---|
| a signer | `sign` and update of /status | approve what it signs | 5 | test_a_signer_neither_adds_nor_changes_an_approval |
| … | … | turn a denial into an approval | 4, 5 | test_a_signer_neither_adds_nor_changes_an_approval |
| … | … | replace a certificate that was issued | 6 | test_a_certificate_can_be_read_and_stays_once_it_is_there |
| … | … | hand out what is no certificate | 6 | test_a_certificate_can_be_read_and_stays_once_it_is_there |
| an approver | `approve` and update of /approval | undo another's denial | 4 | test_approval_keeps_what_lasts_and_never_both_approves_and_denies |
| … | … | approve and deny, for readers who look at one only | 3 | test_approval_keeps_what_lasts_and_never_both_approves_and_denies |
| … | … | approve with a status that some do not read | 2 | test_a_condition_has_a_type_and_a_status_that_is_allowed |
| a requester | another's public key | a request without that key | 1 | test_a_new_request_is_readable_and_proves_its_key |
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from handfast import errors
from handfast.api import field_errors as fields
from handfast.api import jsonpath, objects
from handfast.pki import certificates, pem
from handfast.rules.certificates import admission

_APPROVAL = ("Approved", "Denied")
_LASTING = (*_APPROVAL, "Failed")
_STATUSES = ("False", "True", "Unknown")
_CONDITIONS = "status.conditions"
_CERTIFICATE = "status.certificate"


def create(document: objects.Document | None) -> fields.Causes:
    """Of a new request."""
    # 1. it can be read, and is signed by its own key
    try:
        admission.parse(document)
    except errors.Refused as refused:
        # The data is not shown: a private key sent by mistake must not come back in an error.
        yield fields.invalid("spec.request", "<request data>", refused.message)


def approval(document: objects.Document | None, old: objects.Document | None) -> fields.Causes:
    """Of a write to /approval."""
    yield from _changed(_conditions(document), _conditions(old))


def _changed(new: list[dict[str, Any]], before: list[dict[str, Any]]) -> fields.Causes:
    if fields.differ(new, before):
        # 2. well formed, and 3. not both approved and denied
        yield from _well_formed(new)
    # 4. what lasts is not removed
    for kind in _LASTING:
        if len(_of(new, kind)) < len(_of(before, kind)):
            yield fields.forbidden(_CONDITIONS, f'updates may not remove a condition of type "{kind}"')


def status(document: objects.Document | None, old: objects.Document | None) -> fields.Causes:
    """Of a write to /status."""
    new, before = _conditions(document), _conditions(old)
    # A signer sends them back as they are.
    if new != before:
        # 2. to 4. as in a write to /approval
        yield from _changed(new, before)
        # 5. the approver's conditions stay as they are
        yield from _kept(new, before)
    # 6. the certificate
    yield from _certificate(
        jsonpath.text(document, "status", "certificate"), jsonpath.text(old, "status", "certificate")
    )


def _kept(new: list[dict[str, Any]], before: list[dict[str, Any]]) -> fields.Causes:
    # 5. the approver's conditions stay as they are
    for kind in _APPROVAL:
        added, kept = _of(new, kind), _of(before, kind)
        if len(added) > len(kept):
            yield fields.forbidden(_CONDITIONS, f'updates may not add a condition of type "{kind}"')
        elif len(added) == len(kept) and fields.differ(added, kept):
            yield fields.forbidden(_CONDITIONS, f'updates may not modify a condition of type "{kind}"')


def _conditions(document: objects.Document | None) -> list[dict[str, Any]]:
    return jsonpath.mappings(document, "status", "conditions")


def _of(conditions: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [condition for condition in conditions if condition.get("type") == kind]


def _well_formed(conditions: list[dict[str, Any]]) -> fields.Causes:
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        path, kind = f"{_CONDITIONS}[{index}]", jsonpath.text(condition, "type")
        # 2. a type and a status
        yield from _one(path, kind, condition)
        # 3. not both approved and denied
        if kind in _APPROVAL and seen.intersection(_APPROVAL) - {kind}:
            detail = "Approved and Denied conditions are mutually exclusive"
            yield fields.invalid(f"{path}.type", kind, detail)
        # 2. no type twice
        if kind in seen:
            yield fields.duplicate(f"{path}.type", kind)
        seen.add(kind)


def _one(path: str, kind: str, condition: Mapping[str, Any]) -> fields.Causes:
    # 2. a type and a status
    if not kind:
        yield fields.required(f"{path}.type")
    allowed = ("True",) if kind in _LASTING else _STATUSES
    yield from fields.one_of(f"{path}.status", condition.get("status"), allowed)


def _certificate(new: str, before: str) -> fields.Causes:
    # 6. certificates in PEM, which never change
    if new == before:
        return
    if before:
        yield fields.forbidden(_CERTIFICATE, "updates may not modify existing certificate content")
        return
    try:
        for der in pem.certificates_from_pem(base64.b64decode(new, validate=True)):
            certificates.validity(der)
    except (binascii.Error, ValueError):
        yield fields.invalid(_CERTIFICATE, "<certificate data>", "not base64")
    except errors.Refused as refused:
        yield fields.invalid(_CERTIFICATE, "<certificate data>", refused.message)
