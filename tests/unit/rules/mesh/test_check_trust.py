# SPDX-License-Identifier: Apache-2.0
"""What is installed: each thing that can be wrong with it is one reason, and what cannot be read is unknown."""

import datetime

import pytest

from handfast.pki import certificates, pem
from handfast.rules import check
from handfast.rules.mesh import check_trust, issuer, settings, webhook
from tests.unit.pki import making
from tests.unit.pki.making import NOW
from tests.unit.rules.mesh import checking

FORBIDDEN = check.Unread("no")
DAY = datetime.timedelta(days=1)


def _ending(data: bytes) -> datetime.timedelta:
    """How long it is from NOW to a minute before the end of a certificate."""
    return certificates.read(pem.certificates_from_pem(data)[0]).not_after - NOW - datetime.timedelta(minutes=1)


def verdicts(**changes):
    return {each.name: (each.verdict.value, each.reason) for each in check_trust.checks(checking.facts(**changes))}


def test_without_a_mesh_the_rest_is_not_known():
    told = verdicts(config=None, anchors=None, signing=None)
    assert told["settings"] == ("failed", "NoMesh")
    assert told["trust-anchors"] == ("failed", "NoTrustAnchors")
    assert told["issuer"] == ("unknown", "Unknown")


def test_settings_that_cannot_be_read_fail():
    assert verdicts(config={"data": {"kitchen": "1"}})["settings"] == ("failed", "MeshSettingsUnreadable")
    assert check_trust.chosen(checking.facts(config={"data": {}})) is None


@pytest.mark.parametrize(
    ("field", "names"),
    [
        ("config", {"settings", "issuer"}),
        ("anchors", {"trust-anchors", "issuer"}),
        ("signing", {"issuer"}),
        ("webhook", {"webhook"}),
        ("injector_pair", {"webhook"}),
        ("readers", {"rights"}),
    ],
)
def test_what_may_not_be_read_is_unknown(field, names):
    told = verdicts(**{field: FORBIDDEN})
    assert {name for name, verdict in told.items() if verdict == ("unknown", "Unknown")} == names


def test_a_role_that_may_not_be_read_is_unknown():
    rows = checking.facts().access
    assert verdicts(access=[(rows[0][0], FORBIDDEN)])["rights"] == ("unknown", "Unknown")


def material(**changes):
    root = making.ca("root", not_before=NOW - DAY, not_after=NOW + 3650 * DAY, **changes)
    made = making.ca("issuer", root, not_before=NOW - DAY, not_after=NOW + 300 * DAY)
    return issuer.Material(made.pem, made.key_pem, root.pem)


def test_an_issuer_is_judged_as_the_identity_service_does():
    good, other = material(), material()
    anchors, signing = checking.trust(issuer.Material(good.certificate, good.key, other.anchors))
    assert verdicts(anchors=anchors, signing=signing)["issuer"] == ("failed", "IssuerNotTrusted")
    anchors, signing = checking.trust(issuer.Material(good.certificate, other.key, good.anchors))
    assert verdicts(anchors=anchors, signing=signing)["issuer"] == ("failed", "IssuerKeyMismatch")


@pytest.mark.parametrize(
    ("later", "anchors", "signer"),
    [
        (datetime.timedelta(days=250), ("ok", ""), ("ok", "")),
        (datetime.timedelta(days=310), ("ok", ""), ("warning", "IssuerEndsSoon")),
        (datetime.timedelta(days=354), ("ok", ""), ("failed", "IssuerEndsSoon")),
        (datetime.timedelta(days=364), ("ok", ""), ("failed", "IssuerEndsSoon")),
        (_ending(checking.MATERIAL.certificate), ("ok", ""), ("failed", "IssuerEndsSoon")),
        (datetime.timedelta(days=400), ("ok", ""), ("failed", "IssuerExpired")),
        (datetime.timedelta(days=3600), ("warning", "TrustAnchorEndsSoon"), ("failed", "IssuerExpired")),
        (datetime.timedelta(days=3639), ("failed", "TrustAnchorEndsSoon"), ("failed", "IssuerExpired")),
        (_ending(checking.MATERIAL.anchors), ("failed", "TrustAnchorEndsSoon"), ("failed", "IssuerExpired")),
        (datetime.timedelta(days=4000), ("failed", "TrustAnchorExpired"), ("failed", "IssuerExpired")),
    ],
)
def test_an_end_is_told_sixty_days_before_and_fails_thirty_days_before(later, anchors, signer):
    told = verdicts(now=NOW + later)
    assert (told["trust-anchors"], told["issuer"]) == (anchors, signer)


def test_an_anchor_by_which_the_issuer_is_not_believed_may_end_beside_the_one_that_counts():
    good, ending = material(), making.ca("old", not_before=NOW - 3000 * DAY, not_after=NOW + 11 * DAY)
    anchors, signing = checking.trust(issuer.Material(good.certificate, good.key, good.anchors + ending.pem))
    assert verdicts(anchors=anchors, signing=signing)["trust-anchors"] == ("warning", "TrustAnchorEndsSoon")
    # Nobody knows which one counts.
    assert verdicts(anchors=anchors, signing=FORBIDDEN)["trust-anchors"] == ("failed", "TrustAnchorEndsSoon")


def test_what_lies_between_the_issuer_and_its_anchor_ends_as_the_issuer_does():
    root = making.ca("root", not_before=NOW - DAY, not_after=NOW + 3650 * DAY)
    middle = making.ca("middle", root, not_before=NOW - 300 * DAY, not_after=NOW + 11 * DAY)
    made = making.ca("issuer", middle, not_before=NOW - DAY, not_after=NOW + 300 * DAY)
    anchors, signing = checking.trust(issuer.Material(made.pem + middle.pem, made.key_pem, root.pem))
    told = {each.name: each for each in check_trust.checks(checking.facts(anchors=anchors, signing=signing))}
    assert (told["issuer"].verdict.value, told["issuer"].reason) == ("failed", "IssuerEndsSoon")
    assert "above the issuer" in told["issuer"].sentence


def test_an_anchor_that_is_not_in_force_fails():
    assert verdicts(now=NOW - 30 * DAY)["trust-anchors"] == ("failed", "TrustAnchorNotYetValid")


def test_anchors_that_cannot_be_read_are_none():
    broken = {"data": {"ca-bundle.crt": "no"}}
    assert verdicts(anchors=broken)["trust-anchors"] == ("failed", "BadTrustAnchor")
    assert check_trust.anchors(checking.facts(anchors=broken)) is None
    assert check_trust.anchors(checking.facts(anchors=FORBIDDEN)) is None


def test_a_kind_that_is_missing_fails():
    assert verdicts(missing_kinds=["MeshPolicy"])["kinds"] == ("failed", "KindsMissing")


def test_rights_that_differ_or_are_gone_fail():
    rows = list(checking.facts().access)
    (role, _) = next(row for row in rows if row[0].plural == "roles")
    changed = {**role.document, "rules": []}
    assert verdicts(access=[(role, changed)])["rights"] == ("failed", "RightsDiffer")
    assert verdicts(access=[(role, None)])["rights"] == ("failed", "RightsDiffer")


def test_an_account_that_reads_secrets_of_applications_fails():
    assert verdicts(readers=["linkerd-controller"])["rights"] == ("failed", "RightsTooWide")


def test_without_a_webhook_pods_are_injected_by_hand():
    assert verdicts(webhook=None)["webhook"] == ("warning", "NoWebhook")
    other = webhook.configuration("other", settings.Settings()).document
    assert verdicts(webhook=other)["webhook"] == ("warning", "NoWebhook")


def test_a_webhook_that_is_not_believed_fails():
    bare = webhook.configuration("linkerd", settings.Settings()).document
    assert verdicts(webhook=bare)["webhook"] == ("failed", "WebhookNotBelieved")
    assert verdicts(injector_pair=None)["webhook"] == ("failed", "WebhookCertificate")
    assert verdicts(now=NOW + 8 * DAY)["webhook"] == ("failed", "WebhookCertificate")


def test_a_webhook_whose_certificate_should_have_been_renewed_fails_before_its_end():
    assert verdicts(now=NOW + 6 * DAY)["webhook"] == ("ok", "")
    assert verdicts(now=NOW + 6.5 * DAY)["webhook"] == ("failed", "CertificateEndsSoon")


def test_a_webhook_that_does_not_follow_its_setting_is_told():
    assert verdicts(webhook=checking.hook(failure_policy="Fail"))["webhook"] == ("warning", "WebhookDiffers")
    # Where the setting is not known, that is all that can be said.
    assert verdicts(webhook=checking.hook(failure_policy="Fail"), config=None)["webhook"] == ("ok", "")
