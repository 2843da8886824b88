# SPDX-License-Identifier: Apache-2.0
"""Who may approve and sign certificate requests for a signer, and which subject no request may have.

Whether the caller may write the object at all was decided by the authorizers. Which requests a signer honours is the
signer's own question.

1. Approving or denying needs the verb `approve`. Changing the certificate or the conditions of the status needs the
   verb `sign`. Both are verbs on the resource `signers` of certificates.k8s.io, under the name of the signer or `<its
   domain>/*`. The signer is that of the stored request, whatever the caller sends.
2. A request to `kubernetes.io/kube-apiserver-client` must parse, and must not name the group `system:masters`: whoever
   may approve for this signer would otherwise be able to make administrators.

| who | holding | tries | stopped by | shown in tests/unit/rules/certificates/test_admission.py |
|---|---|---|---|---|
| an approver of one signer | `approve` for it | approve for another signer | 1 | test_approving_needs_the_verb_for_the_signer_or_its_domain |
| … | … | send another signerName along | 1 reads the stored one | test_the_stored_signer_counts |
| a writer of status | update of /status | put in a certificate | 1 | test_signing_needs_the_verb_for_the_signer_or_its_domain |
| a writer of status | … | put in a Failed condition | 1 | test_signing_needs_the_verb_for_the_signer_or_its_domain |
| an approver of client certificates | kubectl | become an administrator | 2 | test_no_client_certificate_names_the_group_of_administrators |
| … | a request that only some parsers read | … | 2 refuses what does not parse | test_unreadable_requests |
"""

from __future__ import annotations

import base64
import binascii
import functools
import json
from typing import Any

from handfast import errors
from handfast.api import jsonpath, objects, signer_names, signing_requests
from handfast.pki import requests
from handfast.rules import access, decision

RULE = "CertificateAdmission"
# Letters of base64; requests of nodes have under a thousand.
_ORDINARY = 4096

_UNCHANGED = decision.NotMine("Unchanged", "neither the certificate nor a condition changes", RULE)
_OTHER_SIGNER = decision.NotMine("OtherSigner", f"the request is not for {signer_names.KUBE_APISERVER_CLIENT}", RULE)
_SUBJECT = decision.Approve("Subject", "the subject is not one of administrators", RULE)


def approval(old: objects.Document | None, user: str, groups: tuple[str, ...], ask: access.Ask) -> decision.Decision:
    """Whether the caller may approve or deny: a write to /approval (1)."""
    return for_signer("approve", jsonpath.text(old, "spec", "signerName"), user, groups, ask)


def signing(
    document: objects.Document | None,
    old: objects.Document | None,
    user: str,
    groups: tuple[str, ...],
    ask: access.Ask,
) -> decision.Decision:
    """Whether the caller may sign: a write to /status that changes certificate or conditions (1)."""
    if _signed(document) == _signed(old):
        return _UNCHANGED
    return for_signer("sign", jsonpath.text(old, "spec", "signerName"), user, groups, ask)


def subject(document: objects.Document | None) -> decision.Decision:
    """Whether a new request names administrators (2)."""
    if jsonpath.text(document, "spec", "signerName") != signer_names.KUBE_APISERVER_CLIENT:
        return _OTHER_SIGNER
    try:
        organizations = parse(document).subject.organizations
    except errors.Refused as refused:
        return decision.Deny(refused.reason, f"failed to parse CSR: {refused.message}", RULE)
    if access.MASTERS in organizations:
        return decision.Deny(
            "SystemMasters",
            f"use of {signer_names.KUBE_APISERVER_CLIENT} signer with {access.MASTERS} group is not allowed",
            RULE,
        )
    return _SUBJECT


def parse(document: objects.Document | None) -> requests.Request:
    """The PKCS#10 request inside a CertificateSigningRequest; errors.Refused if there is none that can be read."""
    text = jsonpath.text(document, "spec", "request")
    return (_remembered if len(text) <= _ORDINARY else _parsed)(text)


def _parsed(text: str) -> requests.Request:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise errors.Refused("spec.request is not base64", reason="MalformedRequest") from None
    return requests.parse(data)


# Several rules look at the same new request, and it may wait between them. Verifying its signature is most of their
# cost. Long requests are not remembered: one with thousands of names would keep megabytes.
_remembered = functools.lru_cache(maxsize=256)(_parsed)


def _signed(document: objects.Document | None) -> tuple[str, list[Any]]:
    return jsonpath.text(document, "status", "certificate"), jsonpath.sequence(document, "status", "conditions")


def for_signer(verb: str, signer: str, user: str, groups: tuple[str, ...], ask: access.Ask) -> decision.Decision:
    """Whether somebody may `approve` or `sign` for a signer."""
    # 1. by the signer's own name, or by that of its whole domain
    for name in (signer, signer.partition("/")[0] + "/*"):
        verdict = ask(
            access.Attributes(
                user=user,
                groups=groups,
                verb=verb,
                is_resource=True,
                group=signing_requests.GROUP,
                version="*",
                plural="signers",
                name=name,
            )
        )
        if isinstance(verdict, decision.Approve):
            return verdict
    sentence = f"user not permitted to {verb} requests with signerName {json.dumps(signer, ensure_ascii=False)}"
    return decision.Deny("SignerNotPermitted", sentence, RULE)
