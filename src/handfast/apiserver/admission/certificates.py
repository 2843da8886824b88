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


def admit_state(attributes: plugin.Attributes, _context: plugin.Context) -> None:
    """New requests, and every change of a status."""
    causes: list[status.Cause] = []
    if attributes.operation == plugin.CREATE and not attributes.subresource:
        causes.extend(state.create(attributes.document))
    elif attributes.subresource == "approval":
        causes.extend(state.approval(attributes.document, attributes.old))
    elif attributes.subresource == "status":
        causes.extend(state.status(attributes.document, attributes.old))
    if causes:
        raise status.invalid(attributes.kind.kind, attributes.kind.group, attributes.name, causes)


def admit_approval(attributes: plugin.Attributes, context: plugin.Context) -> None:
    """Approving and denying."""
    if attributes.subresource == "approval":
        user = attributes.user
        plugin.require(
            attributes, certificate_admission.approval(attributes.old, user.name, user.groups, context.decide)
        )


def admit_signing(attributes: plugin.Attributes, context: plugin.Context) -> None:
    """Certificates, and conditions set beside them."""
    if attributes.subresource == "status":
        user = attributes.user
        verdict = certificate_admission.signing(
            attributes.document, attributes.old, user.name, user.groups, context.decide
        )
        plugin.require(attributes, verdict)


def admit_subject(attributes: plugin.Attributes, _context: plugin.Context) -> None:
    """New requests."""
    if not attributes.subresource:
        plugin.require(attributes, certificate_admission.subject(attributes.document))


STATE = plugin.Row("CertificateState", frozenset({plugin.CREATE, plugin.UPDATE}), admit_state, RESOURCES)
APPROVAL = plugin.Row("CertificateApproval", _UPDATE, admit_approval, RESOURCES)
SIGNING = plugin.Row("CertificateSigning", _UPDATE, admit_signing, RESOURCES)
SUBJECT = plugin.Row("CertificateSubjectRestriction", frozenset({plugin.CREATE}), admit_subject, RESOURCES)
ROWS = (STATE, APPROVAL, SIGNING, SUBJECT)
