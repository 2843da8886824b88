# SPDX-License-Identifier: Apache-2.0
"""What each of the four signers signs, once a request is approved: subject, alternative names, usages and lifetime.

Who may ask and who may approve was decided before; a request that breaks these rules fails, whoever approved it. The
certificate itself is made by `pki.authority`, from the profile given here.

| signer (kubernetes.io/…)      | subject                           | alternative names         | usages              |
|-------------------------------|-----------------------------------|---------------------------|---------------------|
| kube-apiserver-client-kubelet | O=[system:nodes], a node's CN ⁴   | none                      | exactly client, ¹ ² |
| kubelet-serving               | the same                          | DNS or IP, no e-mail, URI | exactly server, ¹ ² |
| kube-apiserver-client         | any ⁵ (admission: not the masters)| any                       | client auth, ² ³    |
| legacy-unknown                | any ⁵                             | any                       | any but cert sign   |

¹ and digital signature  ² key encipherment is optional  ³ digital signature is optional, nothing else is allowed
⁴ `system:node:` and a DNS subdomain of 253 characters at most; an attribute beside O and CN fails the request
⁵ only CN and O are signed; an attribute beside them, such as OU, is left out (`subject`), and an Event says so

1. Each signer's rows are tried in order; the first that does not hold is the reason of the failure.
2. The usages of the certificate are those of the request, never more.
3. The subject of the certificate is CN and O, for every signer: nothing else is read by Kubernetes or in the ledger, and
   what nobody here checks might mean something to another program. Nodes send nothing else, so theirs fail. People's
   requests often have an OU, and Kubernetes signs them: here they are signed without it.
4. The lifetime is what was asked for, at most the signer's, never below ten minutes (`pki.profiles`).

| who | holding | tries | stopped by | shown in tests/unit/rules/certificates/test_signers.py |
|---|---|---|---|---|
| an approver of one kubelet signer | `approve` for it | administrators, by O=system:masters | 1, subject | test_kubelet_client |
| … | … | a node whose name is none, or without an end | 1, subject | test_kubelet_client |
| … | … | a server certificate from the client signer | 1, usages and names | test_kubelet_client |
| … | … | a client certificate from the serving signer | 1, usages | test_kubelet_serving |
| … | … | a SPIFFE identity from the serving signer | 1, names | test_kubelet_serving |
| an approver of client certificates | `approve` for it | a certificate that serves | 1, usages | test_apiserver_client |
| an approver of legacy requests | `approve` for it | a certificate that signs others | 1, usages | test_the_legacy_signer_signs_any_usage_but_cert_sign |
| a requester | an approved request | a certificate that outlives the signer's limit | 4 | test_a_lifetime_lies_between_ten_minutes_and_the_signers |
| … | … | an OU or another attribute that some program trusts | 3 | test_only_common_name_and_organizations_are_signed |
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping

from handfast import errors
from handfast.api import signer_names
from handfast.pki import names, profiles, usages
from handfast.rules import decision
from handfast.rules.certificates import kubelet

RULE = "Signers"
FAILURE = "SignerValidationFailure"

Facts = kubelet.Facts
# What is wrong with a request, None if nothing is.
Row = Callable[[Facts], str | None]


def judge(facts: Facts) -> decision.Approve | decision.Deny:
    """May this signer sign this request? The sentence of a denial is Kubernetes' text of the failure."""
    rows = _ROWS.get(facts.signer_name)
    if rows is None:
        raise errors.Misuse(f"{facts.signer_name!r} is no signer of this control plane; see `signer_names.SIGNERS`")
    # 1. the first row that does not hold is the reason
    for row in rows:
        wrong = row(facts)
        if wrong is not None:
            return decision.Deny(FAILURE, wrong, RULE)
    return decision.Approve("SignerAccepts", f"{facts.signer_name} signs such requests", RULE)


def profile(facts: Facts, longest: datetime.timedelta) -> tuple[profiles.Profile, datetime.timedelta | None]:
    """The profile of a request that `judge` accepted (2), and the lifetime that was asked for, None if none was (4)."""
    # 2. the usages of the request
    chosen = profiles.for_usages(facts.signer_name.rpartition("/")[2], facts.usages, longest)
    # 4. the lifetime that was asked for
    seconds = facts.expiration_seconds
    return chosen, None if seconds is None else datetime.timedelta(seconds=seconds)


def subject(facts: Facts) -> names.Subject:
    """The subject that is signed (3)."""
    # 3. common name and organizations only
    return facts.request.subject.plain


def _plain(facts: Facts) -> str | None:
    others = kubelet.foreign_attributes(facts)
    return f"subject has other attributes than common name and organization: {', '.join(others)}" if others else None


def _node_organization(facts: Facts) -> str | None:
    return None if kubelet.has_node_organization(facts) else "subject organization is not system:nodes"


def _node_common_name(facts: Facts) -> str | None:
    if not kubelet.has_node_prefix(facts):
        return "subject common name does not begin with system:node:"
    wrong = kubelet.wrong_node_name(facts)
    return None if wrong is None else f"subject common name does not name a node after system:node: {wrong}"


def _dns_or_ip(facts: Facts) -> str | None:
    sans = facts.request.sans
    return None if sans.dns or sans.ip else "DNS or IP subjectAltName is required"


def _without(form: str, word: str) -> Row:
    def row(facts: Facts) -> str | None:
        return f"{word} subjectAltNames are not allowed" if getattr(facts.request.sans, form) else None

    return row


def _exactly(wanted: frozenset[str]) -> Row:
    def row(facts: Facts) -> str | None:
        if kubelet.has_usages(facts, wanted):
            return None
        return f"usages did not match [{' '.join(sorted(wanted | {usages.KEY_ENCIPHERMENT}))}]"

    return row


def _client_usages(facts: Facts) -> str | None:
    foreign = sorted(facts.usages - kubelet.CLIENT_USAGES - {usages.KEY_ENCIPHERMENT})
    if foreign:
        return f"invalid usage for client certificate: {foreign[0]}"
    if usages.CLIENT_AUTH not in facts.usages:
        return "missing required usage for client certificate: client auth"
    return None


def _writable_usages(facts: Facts) -> str | None:
    # What X.509 or this program cannot write must fail here: a signer that trips over it later would try for ever.
    try:
        usages.key_usage(profiles.for_usages(facts.signer_name, facts.usages, profiles.YEAR).usages)
    except errors.Refused as refused:
        return refused.message
    return None


_DNS, _EMAIL = _without("dns", "DNS"), _without("email", "Email")
_IP, _URI = _without("ip", "IP"), _without("uri", "URI")

# What must hold, by signer.
_ROWS: Mapping[str, tuple[Row, ...]] = {
    signer_names.KUBELET_CLIENT: (
        _node_organization,
        _node_common_name,
        _plain,
        _DNS,
        _EMAIL,
        _IP,
        _URI,
        _exactly(kubelet.CLIENT_USAGES),
    ),
    signer_names.KUBELET_SERVING: (
        _node_organization,
        _node_common_name,
        _plain,
        _dns_or_ip,
        _EMAIL,
        _URI,
        _exactly(kubelet.SERVING_USAGES),
    ),
    signer_names.KUBE_APISERVER_CLIENT: (_client_usages,),
    signer_names.LEGACY_UNKNOWN: (_writable_usages,),
}
