# SPDX-License-Identifier: Apache-2.0
"""Roots, issuer and rotation of a mesh as the console shows them, without any key."""

from __future__ import annotations

import dataclasses
import datetime

import pytest

from handfast.pki import authority, certificates, keys, names, pem, profiles
from handfast.rules import trust_rotation
from handfast.rules.console import mesh_trust
from handfast.rules.mesh import anchor_rotation, believers, issuer
from tests.unit.rules.mesh.rotation_cases import (
    BOTH,
    LATER,
    NEW,
    NEW_ROOT,
    NEW_SIGNER,
    NOW,
    OLD,
    OLD_ROOT,
    Step,
    after,
    agent,
    known,
    stock,
)

SEEN = known(
    agent("shop/web-1", OLD_ROOT),
    agent("shop/web-2", OLD_ROOT, NEW_ROOT, signer=NEW_SIGNER),
    stock("shop/old-1", OLD_ROOT),
    stock("shop/old-2", OLD_ROOT, signer="another"),
)
NOBODY = believers.Known()
DAY = datetime.timedelta(days=1)


def keyless(record: anchor_rotation.Record) -> dict[str, bytes]:
    """The record as the console has it."""
    return {name: value for name, value in anchor_rotation.encode(record).items() if "key" not in name}


def seen(record: anchor_rotation.Record | None = None, side: issuer.Material = OLD) -> mesh_trust.Trust:
    stored = mesh_trust.Stored(
        anchors=BOTH.to_pem(), issuer=side.certificate, record=None if record is None else keyless(record)
    )
    return mesh_trust.trust(stored, SEEN, LATER)


def test_each_root_is_shown_with_those_who_believe_it_and_depend_on_it_though_no_key_is_there():
    trust = seen(after(Step.ADD, Step.SWITCH), NEW)
    old, new = sorted(trust.roots, key=lambda root: root.signs)
    assert (old.clock.fingerprint, old.agents, old.stock, old.holders) == (OLD_ROOT, 2, 2, 2)
    assert (new.clock.fingerprint, new.signs, new.agents, new.stock, new.holders) == (NEW_ROOT, True, 1, 0, 1)
    assert (trust.agents, trust.stock, trust.unknown, trust.problems) == (2, 2, 1, ())
    assert trust.issuer is not None
    assert trust.issuer.fingerprint == NEW_SIGNER


def test_nothing_of_what_is_shown_has_a_key():
    assert not any(b"PRIVATE" in value or value in {OLD.key, NEW.key} for value in keyless(after(Step.ADD)).values())


def test_an_issuer_that_leads_to_no_root_is_told():
    stored = mesh_trust.Stored(anchors=NEW.anchors, issuer=OLD.certificate)
    trust = mesh_trust.trust(stored, NOBODY, NOW)
    assert [root.signs for root in trust.roots] == [False]
    assert "leads to none of the trust anchors" in trust.problems[0]


def test_what_cannot_be_read_is_told_and_hides_nothing_else():
    stored = mesh_trust.Stored(anchors=b"junk", issuer=b"junk", record={"state.json": b"{}"})
    trust = mesh_trust.trust(stored, SEEN, NOW)
    assert (trust.roots, trust.issuer, trust.rotation, trust.agents) == ((), None, None, 2)
    assert [problem.split(":")[0] for problem in trust.problems] == [
        "the trust anchors cannot be used",
        "the issuer's certificate cannot be read",
        "how far the rotation is cannot be read",
    ]


def test_what_may_not_be_read_is_no_problem_of_the_mesh():
    trust = mesh_trust.trust(mesh_trust.Stored(), SEEN, NOW)
    assert (trust.roots, trust.issuer, trust.rotation, trust.problems) == ((), None, None, ())


def test_a_rotation_shows_its_steps_and_who_lags():
    rotation = seen(after(Step.ADD)).rotation
    assert rotation is not None
    assert [(step.name, step.state) for step in rotation.steps] == [
        ("add", "done"),
        ("switch", "next"),
        ("retire", "later"),
    ]
    assert rotation.steps[0].at == NOW
    assert any("shop/web-1" in wait for wait in rotation.waits)
    assert any("shop/old-1" in wait for wait in rotation.waits)
    assert (rotation.command, rotation.back) == (
        "handfast mesh anchors rotate",
        "handfast mesh anchors rotate --undo",
    )


def test_a_rotation_that_goes_back_before_the_switch_drops_the_new_root():
    rotation = seen(after(Step.ADD, undone=True)).rotation
    assert rotation is not None
    assert [(step.name, step.state) for step in rotation.steps] == [("add", "done"), ("drop", "next")]
    assert (rotation.undoing, rotation.back, rotation.waits) == (True, "", ())


def test_a_rotation_whose_end_has_begun_has_no_way_back():
    record = after(Step.ADD, Step.SWITCH)
    state = trust_rotation.begin(record.state, Step.RETIRE, NOW)
    rotation = seen(dataclasses.replace(record, state=state), NEW).rotation
    assert rotation is not None
    assert rotation.back == ""


@pytest.mark.parametrize(
    ("later", "word", "used"),
    [
        (-DAY, "not yet valid", 0),
        (datetime.timedelta(), "good", 0),
        (320 * DAY, "ends soon", 88),
        (360 * DAY, "urgent", 99),
        (400 * DAY, "expired", 100),
    ],
)
def test_how_near_an_end_is_is_a_word(later: datetime.timedelta, word: str, used: int):
    leaf = certificates.read(pem.certificates_from_pem(OLD.certificate)[0])
    clock = mesh_trust.clock(leaf, NOW + later)
    assert (clock.state, clock.used) == (word, used)
    assert clock.begins < NOW < clock.ends


def test_a_certificate_without_a_life_is_used_up():
    leaf = certificates.read(pem.certificates_from_pem(OLD.certificate)[0])
    clock = mesh_trust.clock(dataclasses.replace(leaf, not_after=leaf.not_before), NOW)
    assert (clock.state, clock.used) == ("expired", 100)


def test_a_chain_leads_to_its_root_by_what_lies_between():
    root_key, middle_key, key = keys.generate(), keys.generate(), keys.generate()
    root = authority.self_signed_ca(names.Subject(common_name="root"), root_key, NOW)
    middle = root.issue(
        middle_key.public,
        names.Subject(common_name="middle"),
        names.Sans(),
        dataclasses.replace(profiles.INTERMEDIATE_CA, path_length=1),
        NOW,
    )
    signer = authority.Authority(middle.der, middle_key)
    last = signer.issue(key.public, names.Subject(common_name="last"), names.Sans(), profiles.INTERMEDIATE_CA, NOW)
    leaf, between, anchor = (certificates.read(der) for der in (last.der, middle.der, root.certificate.der))
    assert mesh_trust.leads_to([leaf, between], [anchor]) == anchor
    assert mesh_trust.leads_to([anchor], [anchor]) == anchor
    assert mesh_trust.leads_to([leaf], [anchor]) is None
    stranger = certificates.read(pem.certificates_from_pem(NEW.certificate)[0])
    assert mesh_trust.leads_to([leaf, stranger, between], [anchor]) is None
