# SPDX-License-Identifier: Apache-2.0
"""Admission: nothing is signed in the name, or for the key, of somebody who is revoked. `rules.revocation` decides.

1. A request is not taken, not approved and not given its certificate while a Revocation refuses its name or its key.
2. Denying such a request, or letting it fail, is always possible.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/admission/test_revoked_requests.py |
|---|---|---|---|---|
| who took over a revoked node | a bootstrap token | ask for a certificate in its name | 1 | test_no_request_in_a_revoked_name |
| … | a request from before | have it approved or signed | 1 | test_no_request_in_a_revoked_name |
"""

from __future__ import annotations

from typing import Final

from handfast import errors
from handfast.api import jsonpath, objects, status
from handfast.apiserver.access import revocations
from handfast.apiserver.admission import certificates, plugin
from handfast.rules import decision
from handfast.rules.certificates import kubelet

NAME: Final = "RevokedRequests"


def row(revoked: revocations.Revocations) -> plugin.Row:
    """The plugin, for the revocations of this server."""

    def admit(write: plugin.Write, context: plugin.Context) -> None:
        # Cheap tests first: mostly there is no revocation at all.
        if not len(revoked) or not _grants(write):
            return
        try:
            facts = kubelet.read(write.document)
        except errors.Refused:
            # Nobody signs what cannot be read; a new one was refused before (`CertificateState`).
            return
        # 1. nothing for a revoked name or key
        verdict = revoked.judge_request(facts, context.now())
        if isinstance(verdict, decision.Deny):
            # The reason is among the causes, too: a machine that joins reads it there.
            raise plugin.Refusal(write, verdict, (status.Cause(verdict.reason, verdict.sentence),))

    return plugin.Row(NAME, frozenset({plugin.CREATE, plugin.UPDATE}), admit, certificates.RESOURCES)


def _grants(write: plugin.Write) -> bool:
    """Whether a write to a certificate request files it, approves it or hands its certificate out (1)."""
    if write.operation == plugin.CREATE:
        return not write.subresource
    if write.subresource == "approval":
        return "Approved" in _conditions(write.document) - _conditions(write.old)
    certificate = jsonpath.text(write.document, "status", "certificate")
    before = jsonpath.text(write.old, "status", "certificate")
    return write.subresource == "status" and certificate != before


def _conditions(document: objects.Document | None) -> set[str]:
    return {jsonpath.text(row, "type") for row in jsonpath.mappings(document, "status", "conditions")}
