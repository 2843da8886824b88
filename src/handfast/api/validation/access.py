# SPDX-License-Identifier: Apache-2.0
"""What is asked of roles, bindings, leases and certificate signing requests.

Whether someone may grant a role or use a signer is decided at admission. `rules.certificates.state` looks at a request's
PKCS#10 content, its own signature, and what becomes of its status; here it is PEM of the right type.

A CertificateSigningRequest:
1. request: there, base64 of a PEM block `CERTIFICATE REQUEST`.
2. usages: at least one, all known, none twice.
3. signerName: a domain of at least two labels, exactly one slash, a path; not the legacy signer.
4. expirationSeconds: 600 or more, if given.
On update: 5. the spec never changes.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any

from handfast.api import field_errors as fields
from handfast.api import jsonpath, objects, signer_names
from handfast.api.validation.workloads import label_selector

_RBAC = "rbac.authorization.k8s.io"
_DOMAIN_LIMIT = 253
_SIGNER_LIMIT = 571
_SHORTEST = 600
_PEM = re.compile(rb"-----BEGIN ([^\r\n-]{1,64})-----\r?\n")
USAGES = (
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
)


def role(document: dict[str, Any]) -> fields.Causes:
    yield from _rules(document, namespaced=True)


def clusterrole(document: dict[str, Any]) -> fields.Causes:
    yield from _rules(document, namespaced=False)
    aggregation = document.get("aggregationRule")
    if not isinstance(aggregation, dict):
        return
    selectors = jsonpath.mappings(aggregation, "clusterRoleSelectors")
    if not selectors:
        yield fields.required(
            "aggregationRule.clusterRoleSelectors",
            "at least one clusterRoleSelector required if aggregationRule is non-nil",
        )
    for index, selector in enumerate(selectors):
        yield from label_selector(f"aggregationRule.clusterRoleSelectors[{index}]", selector)


def _rules(document: dict[str, Any], *, namespaced: bool) -> fields.Causes:
    for index, rule in enumerate(jsonpath.mappings(document, "rules")):
        path, urls = f"rules[{index}]", jsonpath.sequence(rule, "nonResourceURLs")
        if not jsonpath.sequence(rule, "verbs"):
            yield fields.required(f"{path}.verbs", "verbs must contain at least one value")
        if urls and namespaced:
            yield fields.invalid(f"{path}.nonResourceURLs", urls, "namespaced rules cannot apply to non-resource URLs")
        if urls:
            if any(jsonpath.sequence(rule, key) for key in ("apiGroups", "resources", "resourceNames")):
                yield fields.invalid(
                    f"{path}.nonResourceURLs",
                    urls,
                    "rules cannot apply to both regular resources and non-resource URLs",
                )
            continue
        if not jsonpath.sequence(rule, "apiGroups"):
            yield fields.required(f"{path}.apiGroups", "resource rules must supply at least one api group")
        if not jsonpath.sequence(rule, "resources"):
            yield fields.required(f"{path}.resources", "resource rules must supply at least one resource")


def rolebinding(document: dict[str, Any]) -> fields.Causes:
    yield from _binding(document, ("Role", "ClusterRole"), namespaced=True)


def clusterrolebinding(document: dict[str, Any]) -> fields.Causes:
    yield from _binding(document, ("ClusterRole",), namespaced=False)


def _binding(document: dict[str, Any], kinds: tuple[str, ...], *, namespaced: bool) -> fields.Causes:
    reference = jsonpath.mapping(document, "roleRef")
    if jsonpath.text(reference, "apiGroup") != _RBAC:
        yield fields.not_supported("roleRef.apiGroup", jsonpath.text(reference, "apiGroup"), (_RBAC,))
    if jsonpath.text(reference, "kind") not in kinds:
        yield fields.not_supported("roleRef.kind", jsonpath.text(reference, "kind"), kinds)
    yield from fields.named("roleRef.name", jsonpath.text(reference, "name"), objects.path_segment)
    for index, subject in enumerate(jsonpath.mappings(document, "subjects")):
        yield from _subject(f"subjects[{index}]", subject, namespaced=namespaced)


def _subject(path: str, subject: dict[str, Any], *, namespaced: bool) -> fields.Causes:
    kind, name = jsonpath.text(subject, "kind"), jsonpath.text(subject, "name")
    group = jsonpath.text(subject, "apiGroup")
    if not name:
        yield fields.required(f"{path}.name")
    if kind == "ServiceAccount":
        yield from fields.optional_name(f"{path}.name", name, objects.dns_subdomain)
        if group:
            yield fields.not_supported(f"{path}.apiGroup", group, ("",))
        if not jsonpath.text(subject, "namespace") and not namespaced:
            yield fields.required(f"{path}.namespace")
    elif kind in {"User", "Group"}:
        if group != _RBAC:
            yield fields.not_supported(f"{path}.apiGroup", group, (_RBAC,))
    else:
        yield fields.not_supported(f"{path}.kind", kind, ("ServiceAccount", "User", "Group"))


def binding_update(document: dict[str, Any], old: dict[str, Any]) -> fields.Causes:
    if fields.differ(document.get("roleRef"), old.get("roleRef")):
        yield fields.invalid("roleRef", document.get("roleRef"), "cannot change roleRef")


def lease(document: dict[str, Any]) -> fields.Causes:
    spec = jsonpath.mapping(document, "spec")
    duration = spec.get("leaseDurationSeconds")
    if isinstance(duration, int) and duration <= 0:
        yield fields.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")
    yield from fields.not_negative("spec.leaseTransitions", spec.get("leaseTransitions"))


def certificatesigningrequest(document: dict[str, Any]) -> fields.Causes:
    spec = jsonpath.mapping(document, "spec")
    yield from _request(jsonpath.text(spec, "request"))  # 1. PEM of a request
    usages = jsonpath.sequence(spec, "usages")
    if not usages:  # 2. usages, all known, none twice
        yield fields.required("spec.usages")
    seen = set()
    for index, usage in enumerate(usages):
        if usage not in USAGES:
            yield fields.not_supported(f"spec.usages[{index}]", usage, USAGES)
        if str(usage) in seen:
            yield fields.duplicate(f"spec.usages[{index}]", usage)
        seen.add(str(usage))
    yield from signer_name("spec.signerName", jsonpath.text(spec, "signerName"))  # 3. domain and path
    seconds = spec.get("expirationSeconds")
    if isinstance(seconds, int) and seconds < _SHORTEST:  # 4. 600 seconds or more
        yield fields.invalid(
            "spec.expirationSeconds", seconds, "may not specify a duration less than 600 seconds (10 minutes)"
        )


def _request(request: str) -> fields.Causes:
    if not request:
        yield fields.required("spec.request")
        return
    try:
        content = base64.b64decode(request, validate=True)
    except (binascii.Error, ValueError):
        content = b""
    block = _PEM.search(content)
    label = block.group(1).decode("ascii", "replace") if block else ""
    if label != "CERTIFICATE REQUEST":
        # Only the type of the block is shown: a private key sent by mistake must not come back in an error.
        yield fields.invalid("spec.request", label, "PEM block type must be CERTIFICATE REQUEST")


def signer_name(path: str, name: str) -> fields.Causes:
    """`example.com/signer-name`: a domain of two labels or more and a path of dotted subdomains."""
    if not name:
        yield fields.required(path)
        return
    if name == signer_names.LEGACY_UNKNOWN:
        yield fields.invalid(path, name, "the legacy signerName is not allowed via this API version")
    domain, _, rest = name.partition("/")
    if name.count("/") != 1:
        yield fields.invalid(
            path, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        )
        return
    if len(name) > _SIGNER_LIMIT:
        yield fields.too_long(path, _SIGNER_LIMIT)
    if len(domain) > _DOMAIN_LIMIT:
        yield fields.too_long(path, _DOMAIN_LIMIT)
    if len(domain.split(".")) < 2:
        yield fields.invalid(path, domain, "should be a domain with at least two segments separated by dots")
    yield from _labels(path, domain, objects.dns_label)
    yield from _labels(path, rest, objects.dns_subdomain)


def _labels(path: str, part: str, rule: Callable[[str], str | None]) -> fields.Causes:
    for label in part.split("."):
        wrong = rule(label)
        if wrong is not None:
            yield fields.invalid(path, part, f'validating label "{label}": {wrong}')
            # One is enough: the rest would say the same of the same value.
            return


def certificatesigningrequest_update(document: dict[str, Any], old: dict[str, Any]) -> fields.Causes:
    if fields.differ(document.get("spec"), old.get("spec")):  # 5. the spec never changes
        yield fields.forbidden("spec", fields.IMMUTABLE)
