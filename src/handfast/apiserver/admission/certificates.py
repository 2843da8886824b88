# SPDX-License-Identifier: Apache-2.0
"""Admission: who approves, who signs, no administrators by request, and which states a request goes through.

`rules.certificates.admission` and `rules.certificates.state` decide; here the rows only say which writes each looks at.
Three are Kubernetes' plugins. The first is validation that needs to know the subresource, or to read what is in PEM,
which `api.validation.validation` cannot; as there, what is invalid is refused before anybody asks who sent it.
"""

from __future__ import annotations

from handfast.api import signing_requests, status
from handfast.apiserver.admission import plugin
from handfast.rules.certificates import admission as certificate_admission
from handfast.rules.certificates import state

RESOURCES = frozenset({(signing_requests.GROUP, "certificatesigningrequests")})
_UPDATE = frozenset({plugin.UPDATE})


def admit_state(write: plugin.Write, _context: plugin.Context) -> None:
    """New requests, and every change of a status."""
    causes: list[status.Cause] = []
    if write.operation == plugin.CREATE and not write.subresource:
        causes.extend(state.create(write.document))
    elif write.subresource == "approval":
        causes.extend(state.approval(write.document, write.old))
    elif write.subresource == "status":
        causes.extend(state.status(write.document, write.old))
    if causes:
        raise status.invalid(write.kind.kind, write.kind.group, write.name, causes)


def admit_approval(write: plugin.Write, context: plugin.Context) -> None:
    """Approving and denying."""
    if write.subresource == "approval":
        user = write.user
        plugin.require(write, certificate_admission.approval(write.old, user.name, user.groups, context.decide))


def admit_signing(write: plugin.Write, context: plugin.Context) -> None:
    """Certificates, and conditions set beside them."""
    if write.subresource == "status":
        user = write.user
        verdict = certificate_admission.signing(write.document, write.old, user.name, user.groups, context.decide)
        plugin.require(write, verdict)


def admit_subject(write: plugin.Write, _context: plugin.Context) -> None:
    """New requests."""
    if not write.subresource:
        plugin.require(write, certificate_admission.subject(write.document))


STATE = plugin.Row("CertificateState", frozenset({plugin.CREATE, plugin.UPDATE}), admit_state, RESOURCES)
APPROVAL = plugin.Row("CertificateApproval", _UPDATE, admit_approval, RESOURCES)
SIGNING = plugin.Row("CertificateSigning", _UPDATE, admit_signing, RESOURCES)
SUBJECT = plugin.Row("CertificateSubjectRestriction", frozenset({plugin.CREATE}), admit_subject, RESOURCES)
ROWS = (STATE, APPROVAL, SIGNING, SUBJECT)
