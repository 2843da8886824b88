# SPDX-License-Identifier: Apache-2.0
"""Admission: who approves, who signs, and no administrators by request. `rules.certificate_admission` decides.

Three rows, as in Kubernetes; here they only say which writes each looks at.
"""

from __future__ import annotations

from handfast.api import status
from handfast.apiserver import admission
from handfast.rules import certificate_admission, decision

_RESOURCES = frozenset({(certificate_admission.GROUP, "certificatesigningrequests")})
_UPDATE = frozenset({admission.UPDATE})


def admit_approval(asked: admission.Attributes, context: admission.Context) -> None:
    """Approving and denying."""
    if asked.subresource == "approval":
        user = asked.user
        _require(asked, certificate_admission.approval(asked.old, user.name, user.groups, context.decide))


def admit_signing(asked: admission.Attributes, context: admission.Context) -> None:
    """Certificates, and conditions set beside them."""
    if asked.subresource == "status":
        user = asked.user
        verdict = certificate_admission.signing(asked.document, asked.old, user.name, user.groups, context.decide)
        _require(asked, verdict)


def admit_subject(asked: admission.Attributes, _context: admission.Context) -> None:
    """New requests."""
    if not asked.subresource:
        _require(asked, certificate_admission.subject(asked.document))


def _require(asked: admission.Attributes, verdict: decision.Decision) -> None:
    if isinstance(verdict, decision.Deny):
        raise status.forbidden(asked.kind.plural, asked.kind.group, asked.name, verdict.sentence)


APPROVAL = admission.Row("CertificateApproval", _UPDATE, admit_approval, _RESOURCES)
SIGNING = admission.Row("CertificateSigning", _UPDATE, admit_signing, _RESOURCES)
SUBJECT = admission.Row("CertificateSubjectRestriction", frozenset({admission.CREATE}), admit_subject, _RESOURCES)
ROWS = (APPROVAL, SIGNING, SUBJECT)
