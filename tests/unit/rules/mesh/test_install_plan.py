# SPDX-License-Identifier: Apache-2.0
"""What an installation comes to: repeated, cut short, half deleted, and over a mesh in use."""

from __future__ import annotations

import dataclasses
import datetime

import pytest

from handfast.rules.mesh import install_plan, installation, issuer, settings
from tests.unit.pki import making

NOW = making.NOW
NOTHING = install_plan.There()


def typed(material=None, *, force=False, **texts):
    return install_plan.Typed(texts=texts, material=material, force=force)


def installed(material=None, *, generated=True, chosen=None):
    """What is there after an installation."""
    anchors, signing = installation.trust("linkerd", material or issuer.generate(NOW), generated=generated)
    config = installation.config("linkerd", chosen or settings.Settings())
    return install_plan.There(config=config.document, anchors=anchors.document, signing=signing.document)


def without(there, *names):
    kept = {name: getattr(there, name) for name in ("config", "anchors", "signing") if name not in names}
    return install_plan.There(**kept)


def refused(kind, said, there):
    with pytest.raises(kind) as caught:
        install_plan.decide(said, there, NOW)
    return caught.value


def test_an_empty_cluster_gets_new_anchors_and_the_defaults():
    plan = install_plan.decide(typed(), NOTHING, NOW)
    assert plan.settings == settings.Settings()
    assert plan.generated
    anchors, signing, config = install_plan.documents(typed(), NOTHING, plan)
    assert [wanted.name for wanted, _ in (anchors, signing, config)] == [
        "linkerd-trust-anchor",
        "linkerd-identity-signing",
        "linkerd-config",
    ]
    assert all(there is None for _, there in (anchors, signing, config))


def test_a_second_call_changes_nothing():
    there = installed()
    plan = install_plan.decide(typed(), there, NOW)
    for wanted, document in install_plan.documents(typed(), there, plan):
        assert document is not None
        assert installation.updated(document, wanted) == document


def test_what_is_typed_stands_over_what_is_there_and_that_over_the_defaults():
    chosen = settings.Settings(spiffe=True, lifetime=datetime.timedelta(hours=2))
    plan = install_plan.decide(typed(**{"identity.lifetime": "3h"}), installed(chosen=chosen), NOW)
    assert plan.settings.spiffe
    assert plan.settings.lifetime == datetime.timedelta(hours=3)


def test_another_trust_domain_has_to_be_forced():
    there = installed()
    error = refused(settings.NeedsForce, typed(trustDomain="other.example"), there)
    assert error.reason == "MeshIsLive"
    plan = install_plan.decide(typed(trustDomain="other.example", force=True), there, NOW)
    assert plan.settings.trust_domain == "other.example"
    # Before it is in use, nobody is renamed.
    free = install_plan.decide(typed(trustDomain="other.example"), without(there, "config"), NOW)
    assert free.settings.trust_domain == "other.example"


def test_an_issuer_that_was_given_is_stored_in_one_form():
    root = making.ca("root")
    made = making.ca("issuer", root)
    plan = install_plan.decide(typed(issuer.Material(made.der, made.key_pem, root.der)), NOTHING, NOW)
    assert plan.material.certificate == made.pem
    assert plan.material.anchors == root.pem
    assert not plan.generated


def test_an_issuer_below_the_same_anchors_is_replaced_without_force():
    root = making.ca("root")
    first, second = making.ca("one", root), making.ca("two", root)
    there = installed(issuer.Material(first.pem, first.key_pem, root.pem), generated=False)
    plan = install_plan.decide(typed(issuer.Material(second.pem, second.key_pem, root.pem)), there, NOW)
    assert plan.issuer.certificate.der == second.der


def test_an_anchor_in_use_is_not_taken_away_unless_forced():
    there = installed()
    other = issuer.generate(NOW)
    error = refused(settings.NeedsForce, typed(other), there)
    assert "CN=handfast mesh root" in error.message
    assert "would no longer be trusted" in error.message
    assert install_plan.decide(typed(other, force=True), there, NOW).material == other
    both = issuer.Material(other.certificate, other.key, other.anchors + installation.read_anchors(there.anchors or {}))
    assert len(install_plan.decide(typed(both), there, NOW).issuer.anchors.anchors) == 2


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("anchors", "signing"), "both Secret linkerd-identity-signing and ConfigMap linkerd-trust-anchor are gone"),
        (("signing",), "there is a ConfigMap linkerd-trust-anchor, and no Secret linkerd-identity-signing"),
        (("anchors",), "there is a Secret linkerd-identity-signing, and no ConfigMap linkerd-trust-anchor"),
        (("anchors", "config"), "and no ConfigMap linkerd-trust-anchor"),
    ],
)
def test_what_is_gone_from_a_mesh_in_use_is_not_made_up(names, words):
    there = without(installed(), *names)
    error = refused(install_plan.Incomplete, typed(), there)
    assert words in error.message
    assert "--force" in str(error.hint)
    assert install_plan.decide(typed(force=True), there, NOW).generated


def test_anchors_of_an_operator_without_an_issuer_are_not_replaced():
    there = without(installed(generated=False), "signing", "config")
    assert refused(install_plan.Incomplete, typed(), there).reason == "MeshIncomplete"
    assert refused(settings.NeedsForce, typed(issuer.generate(NOW)), there).reason == "MeshIsLive"


def test_a_run_that_was_cut_short_is_completed():
    there = without(installed(), "signing", "config")
    plan = install_plan.decide(typed(), there, NOW)
    (anchors, document), *_ = install_plan.documents(typed(), there, plan)
    assert document is not None
    assert installation.updated(document, anchors) != document
    # Cut short later, what was made is kept.
    later = without(installed(), "config")
    assert not any(
        document is not None and installation.updated(document, wanted) != document
        for wanted, document in install_plan.documents(typed(), later, install_plan.decide(typed(), later, NOW))
    )


def test_an_issuer_that_is_there_is_judged_again():
    there = installed()
    with pytest.raises(issuer.Unfit) as caught:
        install_plan.decide(typed(), there, NOW + datetime.timedelta(days=400))
    assert caught.value.reason == "IssuerExpired"
    broken = install_plan.There(config=there.config, anchors={"data": {}}, signing=there.signing)
    assert refused(issuer.Unfit, typed(), broken).reason == "NoTrustAnchors"
    # Anchors that cannot be read are trusted by nobody: others may take their place.
    other = issuer.generate(NOW)
    assert install_plan.decide(typed(other), broken, NOW).material == other


def test_settings_that_cannot_be_read_are_not_written_over():
    there = install_plan.There(config={"data": {"trustDomain": "cluster.local", "x": "y"}})
    assert refused(settings.Unreadable, typed(), there).reason == "MeshSettingsUnreadable"
    assert refused(settings.Unreadable, typed(), install_plan.There(config={})).message == "trustDomain is missing"


def test_a_rotation_that_is_under_way_is_not_undone():
    first = issuer.generate(NOW)
    after = issuer.generate(NOW)
    both = dataclasses.replace(after, anchors=first.anchors + after.anchors)
    there = dataclasses.replace(installed(both), rotation={"kind": "Secret"})
    for force in (False, True):
        old = dataclasses.replace(first, anchors=both.anchors)
        assert refused(install_plan.Rotating, typed(old, force=force), there).reason == "RotationUnderWay"
    # What is there stays, and settings may change.
    plan = install_plan.decide(typed(**{"identity.lifetime": "3h"}), there, NOW)
    assert issuer.stored(plan.material) == issuer.stored(both)
    assert install_plan.decide(typed(both), there, NOW).material == issuer.stored(both)


@pytest.mark.parametrize("broken", ["gone", "unreadable"])
def test_what_a_rotation_needs_may_be_mended(broken):
    whole = issuer.generate(NOW)
    there = dataclasses.replace(installed(whole), rotation={"kind": "Secret"})
    there = dataclasses.replace(there, signing=None if broken == "gone" else {"data": {"tls.crt": "eA=="}})
    assert install_plan.decide(typed(whole), there, NOW).material == issuer.stored(whole)
