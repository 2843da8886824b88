# SPDX-License-Identifier: Apache-2.0
"""Is this the request of a node: for its client certificate, the renewal of that, or its serving certificate?

Whether the requester may have it approved is decided afterwards, by the authorizers, under the permission named here. A
request that is not recognised stays pending: nobody decides it.

A node client request (`nodeclient`):
1. It is for the signer kubernetes.io/kube-apiserver-client-kubelet.
2. The organizations are exactly [system:nodes], and beside them and the common name the subject has no attribute.
3. The common name is `system:node:` and the name of a node: a DNS subdomain, of 253 characters at most.
4. It has no alternative names of any form.
5. The usages are exactly digital signature and client auth, with or without key encipherment.

A node serving request (`selfnodeserver`) is for the signer kubernetes.io/kubelet-serving, holds to 2 and 3, and:
6. It has a DNS name or an address, and neither e-mail address nor URI.
7. The usages are exactly digital signature and server auth, with or without key encipherment.
8. Every name and address is one of the Node's own addresses, as whole names; a wildcard never is.
9. None of them is of every machine (loopback, unspecified, link-local, multicast, `localhost`), of a Service in the
   cluster, such as the API server's `kubernetes.default.svc`, or `reserved`: what the caller knows to be another's.

A renewal (`selfnodeclient`) is a node client request for which 10 holds as well. A serving request needs it, too:
10. It was sent by the user that the common name names.

A node reports its addresses itself. Check 8 keeps a node from names that it never claimed in public, and 9 from claiming
what is known to be another's. Nothing keeps it from claiming the rest: whoever grants `selfnodeserver` by a role decides
that this is enough.

| who | holding | tries | stopped by | shown in tests/unit/rules/certificates/test_kubelet.py |
|---|---|---|---|---|
| a joining machine | a bootstrap token | become an administrator by O=system:masters | 2 | test_node_client |
| … | … | more groups beside system:nodes | 2 compares whole lists | test_node_client |
| … | … | an attribute that means something to another program | 2 | test_node_client |
| … | … | the name of a person or service account | 3 | test_node_client |
| … | … | a name of no node, or one that fills the ledger or a terminal | 3 | test_node_client |
| … | … | serve as the API server with its client certificate | 4, 5 | test_node_client |
| a node | its client certificate | renew as another node | 10; `nodeclient` is not its to use | test_a_renewal_is_sent_by_the_user_that_it_names |
| a node | its client certificate | a serving certificate for another's name | 8 | test_a_serving_request_fails_at_the_one_check_that_it_breaks |
| … | … | a wildcard, an e-mail address or a SPIFFE id | 6, 8 | test_a_serving_request_fails_at_the_one_check_that_it_breaks |
| … | and its own Node's status | to serve as the API server, another node or `localhost` | 9 | test_never_a_nodes |
| a joining machine | a bootstrap token | a serving certificate in a node's name | 10 | test_a_serving_request_fails_at_the_one_check_that_it_breaks |
| a node that is not registered | its client certificate | any serving certificate | 8 | test_serving_without_a_node |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from handfast import errors
from handfast.api import jsonpath, objects, signer_names
from handfast.pki import names, requests, usages
from handfast.rules import user_names
from handfast.rules.certificates import admission

SELF_NODE_CLIENT = "selfnodeclient"
NODE_CLIENT = "nodeclient"
SELF_NODE_SERVER = "selfnodeserver"

_SIGNER_OF: Mapping[str, str] = {
    SELF_NODE_CLIENT: signer_names.KUBELET_CLIENT,
    NODE_CLIENT: signer_names.KUBELET_CLIENT,
    SELF_NODE_SERVER: signer_names.KUBELET_SERVING,
}
# By signer; of the permissions of one signer the last above counts, which is the widest.
_WIDEST: Mapping[str, str] = {signer: permission for permission, signer in _SIGNER_OF.items()}
_MESSAGES: Mapping[str, str] = {
    SELF_NODE_CLIENT: "Auto approving self kubelet client certificate after SubjectAccessReview.",
    NODE_CLIENT: "Auto approving kubelet client certificate after SubjectAccessReview.",
    SELF_NODE_SERVER: "Auto approving self kubelet serving certificate after SubjectAccessReview.",
}

CLIENT_USAGES = frozenset({usages.DIGITAL_SIGNATURE, usages.CLIENT_AUTH})
SERVING_USAGES = frozenset({usages.DIGITAL_SIGNATURE, usages.SERVER_AUTH})

# The names of the checks, which explanations refer to.
SIGNER = "signer"
ORGANIZATION = "organization"
COMMON_NAME = "common name"
NO_SANS = "no alternative names"
HAS_SANS = "alternative names"
USAGES = "usages"
ADDRESSES = "node addresses"
RESERVED = "reserved names"
REQUESTER = "requester"

# 9. names below a dot are those of Services, and of this machine by RFC 6761
_NEVER = frozenset({"localhost", "kubernetes", "kubernetes.default"})
_NEVER_BELOW = (".localhost", ".svc", ".svc.cluster.local")
# What is reserved where nothing is known to be another's.
NO_NAMES: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is decided by: the request, and who sent it as the server wrote it down. `usages` are the words as sent."""

    name: str
    signer_name: str
    usages: frozenset[str]
    username: str
    uid: str
    groups: tuple[str, ...]
    extra: Mapping[str, tuple[str, ...]]
    expiration_seconds: int | None
    request: requests.Request

    @property
    def node_name(self) -> str:
        """The node that the common name names; empty if it names none."""
        return user_names.node_named(self.request.subject.common_name)


@dataclass(frozen=True, slots=True)
class Check:
    """One check that was made: its name, how it went, and what was compared."""

    name: str
    passed: bool
    compared: str


class Recognised(msgspec.Struct, frozen=True):
    """The request is of this kind. `permission` is the subresource to ask for; `message` is what its approval says."""

    permission: str
    message: str
    checks: tuple[Check, ...]


def read(document: objects.Document | None) -> Facts:
    """The facts of a CertificateSigningRequest; errors.Refused when its request cannot be read."""
    spec = jsonpath.mapping(document, "spec")
    seconds = spec.get("expirationSeconds")
    return Facts(
        name=jsonpath.text(document, "metadata", "name"),
        signer_name=jsonpath.text(spec, "signerName"),
        usages=frozenset(jsonpath.texts(spec, "usages")),
        username=jsonpath.text(spec, "username"),
        uid=jsonpath.text(spec, "uid"),
        groups=tuple(jsonpath.texts(spec, "groups")),
        extra={key: tuple(jsonpath.texts(spec, "extra", key)) for key in jsonpath.mapping(spec, "extra")},
        expiration_seconds=seconds if isinstance(seconds, int) and not isinstance(seconds, bool) else None,
        request=admission.parse(document),
    )


def candidates(
    facts: Facts, addresses: Sequence[str] | None = None, reserved: frozenset[str] = NO_NAMES
) -> tuple[Recognised, ...]:
    """Every kind that the request is of, in the order in which Kubernetes asks for their permissions.

    A renewal is also a node client request: whoever may not renew itself may still be one who brings nodes in.
    """
    recognised = []
    for permission, message in _MESSAGES.items():
        # 1. and 10. tell the kinds apart; a request of another kind is not looked at any further
        if _SIGNER_OF[permission] != facts.signer_name or not _is_sent_by_its_node(facts, permission):
            continue
        run = checks(facts, permission, addresses, reserved)
        if all(check.passed for check in run):
            recognised.append(Recognised(permission, message, run))
    return tuple(recognised)


def widest_permission(signer_name: str) -> str | None:
    """The permission that requests for a signer can be approved by, the widest if there are several."""
    return _WIDEST.get(signer_name)


def permissions(signer_name: str) -> tuple[str, ...]:
    """Every permission that requests for a signer can be approved by."""
    return tuple(permission for permission, wanted in _SIGNER_OF.items() if wanted == signer_name)


def checks(
    facts: Facts, permission: str, addresses: Sequence[str] | None = None, reserved: frozenset[str] = NO_NAMES
) -> tuple[Check, ...]:
    """All checks of one kind, in order. One that fails does not end the list."""
    run = [*_form_checks(facts, permission)]
    if permission == SELF_NODE_SERVER:
        # 8. addresses of the Node; 9. nobody else's
        run += [_addresses_check(facts.request.sans, addresses), reserved_check(facts.request.sans, reserved)]
    return (*run, *_requester_checks(facts, permission))


def checks_without_addresses(facts: Facts, permission: str) -> tuple[Check, ...]:
    """The checks of one kind without 8 and 9: for whoever knows better what a node's addresses are than its Node."""
    return (*_form_checks(facts, permission), *_requester_checks(facts, permission))


def _form_checks(facts: Facts, permission: str) -> tuple[Check, ...]:
    if permission not in _SIGNER_OF:
        raise errors.Misuse(f"{permission!r} is no permission of the approver; one of: {', '.join(_SIGNER_OF)}")
    wanted = _SIGNER_OF[permission]
    return (
        # 1. for the signer of this kind
        Check(SIGNER, facts.signer_name == wanted, f"{facts.signer_name} is to be {wanted}"),
        # 2. the one organization, and no other attribute
        _organization_check(facts),
        # 3. the name of a node
        _common_name_check(facts),
        *(_serving_checks(facts) if permission == SELF_NODE_SERVER else _client_checks(facts)),
    )


def _organization_check(facts: Facts) -> Check:
    others = foreign_attributes(facts)
    beside = f" with {', '.join(others)} beside it" if others else ""
    compared = f"{listed(facts.request.subject.organizations)}{beside} is to be [{user_names.NODES}]"
    return Check(ORGANIZATION, has_node_organization(facts) and not others, compared + (" alone" if others else ""))


def has_node_organization(facts: Facts) -> bool:
    """Whether the organizations are exactly those of a node (2)."""
    return facts.request.subject.organizations == (user_names.NODES,)


def foreign_attributes(facts: Facts) -> tuple[str, ...]:
    """The kinds of attribute beside common name and organization, of which there may be none (2)."""
    return facts.request.subject.other_types


def _common_name_check(facts: Facts) -> Check:
    # 3. the prefix, then the name of a node
    wrong = wrong_node_name(facts) if has_node_prefix(facts) else None
    compared = f"{facts.request.subject.common_name!r} is to begin with {user_names.NODE_PREFIX}"
    if wrong is not None:
        # Not the name itself, which may be as long as a request.
        compared = f"what follows {user_names.NODE_PREFIX} is no name of a node: {wrong}"
    return Check(COMMON_NAME, has_node_prefix(facts) and wrong is None, compared)


def has_node_prefix(facts: Facts) -> bool:
    """Whether the common name begins as that of a node (3)."""
    return facts.request.subject.common_name.startswith(user_names.NODE_PREFIX)


def wrong_node_name(facts: Facts) -> str | None:
    """None if the common name goes on with the name of a node, else what is wrong with it (3)."""
    return objects.dns_subdomain(facts.node_name)


def _client_checks(facts: Facts) -> list[Check]:
    sans = facts.request.sans
    return [
        # 4. no alternative names
        Check(NO_SANS, not sans, f"it has {listed(sans.texts())}" + (", and is to have none" if sans else "")),
        # 5. the usages of a client
        _usages_check(facts, CLIENT_USAGES),
    ]


def _serving_checks(facts: Facts) -> list[Check]:
    sans = facts.request.sans
    # 6. a DNS name or an address, and nothing else
    good = bool(sans.dns or sans.ip) and not (sans.email or sans.uri)
    compared = f"{listed(sans.texts())} is to hold a DNS name or an address, and neither e-mail address nor URI"
    return [
        Check(HAS_SANS, good, compared),
        # 7. the usages of a server
        _usages_check(facts, SERVING_USAGES),
    ]


def _usages_check(facts: Facts, wanted: frozenset[str]) -> Check:
    compared = f"{listed(sorted(facts.usages))} is to be {listed(sorted(wanted))}, with or without key encipherment"
    return Check(USAGES, has_usages(facts, wanted), compared)


def has_usages(facts: Facts, wanted: frozenset[str]) -> bool:
    """Whether the usages are exactly those wanted, with or without key encipherment (5, 7)."""
    return facts.usages in (wanted, wanted | {usages.KEY_ENCIPHERMENT})


def _addresses_check(sans: names.Sans, addresses: Sequence[str] | None) -> Check:
    # 8. addresses of the Node
    if addresses is None:
        return Check(ADDRESSES, False, "the Node is not registered, so that none of its addresses is known")
    foreign = not_of_the_node(sans, addresses)
    if foreign:
        return Check(ADDRESSES, False, f"{listed(foreign)} is not among the Node's addresses {listed(addresses)}")
    return Check(ADDRESSES, True, f"all are among the Node's addresses {listed(addresses)}")


def not_of_the_node(sans: names.Sans, addresses: Sequence[str]) -> list[str]:
    """Those DNS names and IP addresses that are not among a Node's addresses (8)."""
    known = {canonical(address) for address in addresses if not address.startswith("*")}
    return [text for text in (*sans.dns, *map(str, sans.ip)) if canonical(text) not in known]


def reserved_check(sans: names.Sans, reserved: frozenset[str] = NO_NAMES) -> Check:
    """Whether none of the names is of every machine, of a Service or `reserved` (9)."""
    taken = withheld(sans, reserved)
    if taken:
        return Check(
            RESERVED, False, f"{listed(taken)} is of every machine, of a Service, of the API server or another Node"
        )
    return Check(RESERVED, True, "none is known to be another's")


def withheld(sans: names.Sans, reserved: frozenset[str]) -> list[str]:
    """Those DNS names and IP addresses that no Node is given (9)."""
    others = {canonical(text) for text in reserved}
    compared = ((text, canonical(text)) for text in (*sans.dns, *map(str, sans.ip)))
    return [text for text, name in compared if name in others or _is_never_a_nodes(name)]


def _is_never_a_nodes(name: names.IP | str) -> bool:
    if isinstance(name, str):
        return name in _NEVER or name.endswith(_NEVER_BELOW)
    return name.is_loopback or name.is_unspecified or name.is_link_local or name.is_multicast


def _requester_checks(facts: Facts, permission: str) -> tuple[Check, ...]:
    if permission == NODE_CLIENT:
        return ()
    # 10. sent by the node itself
    compared = f"{facts.username!r} is to be the common name {facts.request.subject.common_name!r}"
    return (Check(REQUESTER, _is_sent_by_its_node(facts, permission), compared),)


def _is_sent_by_its_node(facts: Facts, permission: str) -> bool:
    """Whether the node itself sent the request, for the kinds that need it (10)."""
    return permission == NODE_CLIENT or facts.username == facts.request.subject.common_name


def canonical(text: str) -> names.IP | str:
    """A name or an address in the one form that is compared: addresses by value, names in lower case without a dot at the end."""
    try:
        address = names.ip_address(text)
    except errors.Refused:
        return text.lower().removesuffix(".")
    return getattr(address, "ipv4_mapped", None) or address


def listed(texts: Sequence[str]) -> str:
    """Texts in a sentence; one need not guess what an empty bracket is."""
    return f"[{', '.join(texts)}]" if texts else "none"
