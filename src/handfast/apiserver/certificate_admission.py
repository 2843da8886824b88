# SPDX-License-Identifier: Apache-2.0
"""Admission: who approves, who signs, no administrators by request, and which states a request goes through.

`rules.certificate_admission` and `rules.certificate_state` decide; here the rows only say which writes each looks at.
Three are Kubernetes' plugins. The first is validation that needs to know the subresource, or to read what is in PEM,
which `api.validation` cannot; as there, what is invalid is refused before anybody asks who sent it.
"""

from __future__ import annotations

from handfast.api import signing_requests, status
from handfast.apiserver import admission
from handfast.rules import certificate_admission, certificate_state

RESOURCES = frozenset({(signing_requests.GROUP, "certificatesigningrequests")})
_UPDATE = frozenset({admission.UPDATE})


def admit_state(asked: admission.Attributes, _context: admission.Context) -> None:
    """New requests, and every change of a status."""
    causes: list[status.Cause] = []
    if asked.operation == admission.CREATE and not asked.subresource:
        causes.extend(certificate_state.create(asked.document))
    elif asked.subresource == "approval":
        causes.extend(certificate_state.approval(asked.document, asked.old))
    elif asked.subresource == "status":
        causes.extend(certificate_state.status(asked.document, asked.old))
    if causes:
        raise status.invalid(asked.kind.kind, asked.kind.group, asked.name, causes)


def admit_approval(asked: admission.Attributes, context: admission.Context) -> None:
    """Approving and denying."""
    if asked.subresource == "approval":
        user = asked.user
        admission.require(asked, certificate_admission.approval(asked.old, user.name, user.groups, context.decide))


def admit_signing(asked: admission.Attributes, context: admission.Context) -> None:
    """Certificates, and conditions set beside them."""
    if asked.subresource == "status":
        user = asked.user
        verdict = certificate_admission.signing(asked.document, asked.old, user.name, user.groups, context.decide)
        admission.require(asked, verdict)


def admit_subject(asked: admission.Attributes, _context: admission.Context) -> None:
    """New requests."""
    if not asked.subresource:
        admission.require(asked, certificate_admission.subject(asked.document))


STATE = admission.Row("CertificateState", frozenset({admission.CREATE, admission.UPDATE}), admit_state, RESOURCES)
APPROVAL = admission.Row("CertificateApproval", _UPDATE, admit_approval, RESOURCES)
SIGNING = admission.Row("CertificateSigning", _UPDATE, admit_signing, RESOURCES)
SUBJECT = admission.Row("CertificateSubjectRestriction", frozenset({admission.CREATE}), admit_subject, RESOURCES)
ROWS = (STATE, APPROVAL, SIGNING, SUBJECT)
