# SPDX-License-Identifier: Apache-2.0
"""Checks of what is installed: settings, trust anchors, issuer, kinds, rights and webhook. It reads nothing.

1. The settings are there, and can be read.
2. The trust anchors can be read, have keys that proxies verify, and are in force. One by which the issuer is believed fails once less is left of it than it takes to
   replace it (`expiry`); any that ends soon is told.
3. The issuer passes the checks of the identity service. It, and what lies between it and its anchor, fail near their end as an anchor does.
4. The API server has the kinds that the services use.
5. The accounts have exactly the rights that this version gives them, and none of them reads the Secrets of applications.
6. The webhook is there, believes the certificate that the injector's Secret holds, and that one is in force and was renewed in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from handfast import errors
from handfast.api import jsonpath
from handfast.pki import bundles
from handfast.rules import check
from handfast.rules.mesh import (
    check_facts,
    expiry,
    injector_pair,
    installation,
    issuer,
    settings,
    webhook,
)

_INSTALL: Final = "run handfast mesh install"
_OTHER_ISSUER: Final = "give another issuer: handfast mesh install --trust-anchors … --issuer-cert … --issuer-key …"


def chosen(facts: check_facts.Facts) -> settings.Settings | None:
    """The settings, where they can be read (1)."""
    if not isinstance(facts.config, dict):
        return None
    try:
        return settings.parse(jsonpath.mapping(facts.config, "data"))
    except errors.Refused:
        return None


def anchors(facts: check_facts.Facts) -> bundles.TrustBundle | None:
    """The trust anchors, where they can be read (2)."""
    if not isinstance(facts.anchors, dict):
        return None
    try:
        return issuer.read_anchors(installation.read_anchors(facts.anchors))
    except issuer.Unfit:
        return None


def checks(facts: check_facts.Facts) -> tuple[check.Check, ...]:
    """All of them, in order."""
    return _settings(facts), _anchors(facts), _issuer(facts), _kinds(facts), _rights(facts), _webhook(facts)


def _settings(facts: check_facts.Facts) -> check.Check:
    name = "settings"
    # 1. there, and readable
    if isinstance(facts.config, check.Unread):
        return check.unread(name, facts.config)
    if facts.config is None:
        said = f"there is no mesh in namespace {facts.namespace}"
        return check.Check(name, check.Verdict.FAILED, said, "NoMesh", f"{_INSTALL}, or name its namespace")
    try:
        read = settings.parse(jsonpath.mapping(facts.config, "data"))
    except errors.Refused as refused:
        return _refused(name, refused, "correct the ConfigMap linkerd-config")
    return check.Check(name, check.Verdict.OK, f"identities end in {read.trust_domain}")


def _anchors(facts: check_facts.Facts) -> check.Check:
    name = "trust-anchors"
    if isinstance(facts.anchors, check.Unread):
        return check.unread(name, facts.anchors)
    # 2. readable, and in force
    try:
        bundle = issuer.read_anchors(installation.read_anchors(facts.anchors or {}))
    except issuer.Unfit as unfit:
        return _refused(name, unfit, _OTHER_ISSUER)
    early = [str(each.subject) for each in bundle.anchors if facts.now < each.not_before]
    if early:
        said = f"not in force yet: {check.several(early)}"
        return check.Check(name, check.Verdict.FAILED, said, "TrustAnchorNotYetValid", "compare the clocks, or wait")
    loaded = _loaded(facts)
    rows = []
    for each in bundle.anchors:
        row = expiry.near(f"trust anchor {each.subject}", each, facts.now)
        if row is not None:
            # One beside it, that nobody is believed by any more, may end.
            counts = loaded is None or loaded.anchor == each.fingerprint
            rows.append(msgspec.structs.replace(row, fails=row.fails and counts))
    hint = "replace them while they last: handfast mesh anchors rotate"
    return _ending(name, rows, ("TrustAnchorExpired", "TrustAnchorEndsSoon"), hint, f"{len(bundle.anchors)} in force")


def _loaded(facts: check_facts.Facts) -> issuer.Issuer | None:
    """The issuer, where it passes the checks of the identity service."""
    read = chosen(facts)
    if read is None or isinstance(facts.signing, check.Unread):
        return None
    try:
        return issuer.load(_material(facts), read.mesh(facts.namespace), facts.now)
    except errors.Refused:
        return None


def _material(facts: check_facts.Facts) -> issuer.Material:
    return installation.read_material(_document(facts.signing), _document(facts.anchors))


def _issuer(facts: check_facts.Facts) -> check.Check:
    name, read = "issuer", chosen(facts)
    for stored in (facts.signing, facts.anchors):
        if isinstance(stored, check.Unread):
            return check.unread(name, stored)
    if read is None:
        return check.unknown(name, "the settings are not known")
    # 3. as the identity service judges it
    try:
        loaded = issuer.load(_material(facts), read.mesh(facts.namespace), facts.now)
    except errors.Refused as refused:
        return _refused(name, refused, _OTHER_ISSUER)
    rows = issuer.own_endings(loaded, facts.now)
    return _ending(
        name, rows, ("IssuerExpired", "IssuerEndsSoon"), _OTHER_ISSUER, f"good until {loaded.ends:%Y-%m-%dT%H:%M:%SZ}"
    )


def _kinds(facts: check_facts.Facts) -> check.Check:
    # 4. the kinds
    return check.about(
        "kinds",
        facts.missing_kinds,
        check.Verdict.FAILED,
        "KindsMissing",
        lambda rows: f"the API server does not have {rows}",
        _INSTALL,
        "the API server has all of them",
    )


def _rights(facts: check_facts.Facts) -> check.Check:
    name = "rights"
    # 5. nobody reads what is not theirs
    if not isinstance(facts.readers, check.Unread) and facts.readers:
        said = f"may read the Secrets of applications: {check.several(facts.readers)}"
        hint = "find the binding with kubectl auth can-i --list --as, and remove it"
        return check.Check(name, check.Verdict.FAILED, said, "RightsTooWide", hint)
    unread = [
        stored for stored in (*(each for _, each in facts.access), facts.readers) if isinstance(stored, check.Unread)
    ]
    wrong = [
        wanted.title
        for wanted, stored in facts.access
        if not isinstance(stored, check.Unread) and (stored is None or installation.updated(stored, wanted) != stored)
    ]
    if wrong:
        said = f"not as this version needs them: {check.several(wrong)}"
        return check.Check(name, check.Verdict.FAILED, said, "RightsDiffer", _INSTALL)
    if unread:
        return check.unread(name, unread[0])
    return check.Check(
        name, check.Verdict.OK, "each account has what it needs, and no right to the Secrets of all namespaces"
    )


def _webhook(facts: check_facts.Facts) -> check.Check:
    name, read = "webhook", chosen(facts)
    for stored in (facts.webhook, facts.injector_pair):
        if isinstance(stored, check.Unread):
            return check.unread(name, stored)
    if facts.webhook is None or not webhook.is_ours(_document(facts.webhook), facts.namespace):
        said = "there is none for this mesh: Pods get a proxy by handfast mesh inject alone"
        hint = "say where the injector is: handfast mesh install --endpoint injector=IP:PORT"
        return check.Check(name, check.Verdict.WARNING, said, "NoWebhook", hint)
    # 6. believed, and in force
    data = jsonpath.mapping(_document(facts.injector_pair), "data")
    held = injector_pair.read(data, webhook.server_name(facts.namespace), facts.now)
    if held.pair is None:
        said = f"the Secret {webhook.PAIR} holds no pair that is in force"
        return check.Check(
            name, check.Verdict.FAILED, said, "WebhookCertificate", "see that the injector runs: it makes one"
        )
    if expiry.is_late(held.pair.leaf, facts.now):
        said = f"the injector's certificate ends at {held.pair.leaf.not_after:%Y-%m-%dT%H:%M:%SZ}, and should have been renewed"
        hint = "see that the injector runs, and its log: it renews its certificate itself"
        return check.Check(name, check.Verdict.FAILED, said, "CertificateEndsSoon", hint)
    if not injector_pair.is_believed(held.pair, webhook.bundle(_document(facts.webhook))):
        said = "its CA bundle does not have the root of the injector's certificate"
        return check.Check(
            name, check.Verdict.FAILED, said, "WebhookNotBelieved", "see that the injector runs: it writes the bundle"
        )
    if read is not None and jsonpath.text(_first(facts), "failurePolicy") != read.failure_policy:
        said = f"its failurePolicy is not {read.failure_policy}, as injector.failurePolicy says"
        return check.Check(name, check.Verdict.WARNING, said, "WebhookDiffers", _INSTALL)
    return check.Check(name, check.Verdict.OK, f"believed until {held.pair.leaf.not_after:%Y-%m-%dT%H:%M:%SZ}")


def _first(facts: check_facts.Facts) -> dict[str, object]:
    return next(iter(jsonpath.mappings(_document(facts.webhook), "webhooks")), {})


def _document(stored: check.Stored) -> dict[str, object]:
    return stored if isinstance(stored, dict) else {}


def _refused(name: str, refused: errors.HandfastError, hint: str) -> check.Check:
    return check.Check(name, check.Verdict.FAILED, refused.message, refused.reason, refused.hint or hint)


def _ending(name: str, rows: Sequence[expiry.Ending], reasons: tuple[str, str], hint: str, well: str) -> check.Check:
    over = [row for row in rows if row.stage is expiry.Stage.OVER]
    short = [row for row in rows if row.fails]
    said = check.several([row.sentence for row in over or short or rows])
    if over:
        return check.Check(name, check.Verdict.FAILED, said, reasons[0], hint)
    if short:
        return check.Check(name, check.Verdict.FAILED, said, reasons[1], hint)
    if rows:
        return check.Check(name, check.Verdict.WARNING, said, reasons[1], hint)
    return check.Check(name, check.Verdict.OK, well)
