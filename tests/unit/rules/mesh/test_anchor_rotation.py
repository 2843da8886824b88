# SPDX-License-Identifier: Apache-2.0
"""Replacing the root of the mesh: what comes next, what it waits for, what it writes, and the way back."""

from __future__ import annotations

import dataclasses
import datetime

import pytest

from handfast import errors
from handfast.pki import bundles
from handfast.rules import trust_rotation
from handfast.rules.mesh import anchor_rotation as rotation
from handfast.rules.mesh import anchor_waits, believers, issuer
from handfast.rules.trust_rotation import Step
from tests.unit.pki import making
from tests.unit.rules.mesh import rotation_cases as cases
from tests.unit.rules.mesh.rotation_cases import (
    BOTH,
    HOUR,
    LATER,
    MESH,
    NEW,
    NEW_ROOT,
    NEW_SIGNER,
    NOW,
    OLD,
    OLD_ROOT,
    OLD_SIGNER,
    after,
    agent,
    known,
    record,
    stock,
    stored,
)

ADDED, SWITCHED = (Step.ADD,), (Step.ADD, Step.SWITCH)


def bundle(*materials):
    return issuer.read_anchors(b"".join(each.anchors for each in materials))


def sentences(made, seen=None, now=LATER):
    return [wait.sentence for wait in anchor_waits.waits(made, seen or known(), now)]


def refused(work, *arguments):
    with pytest.raises(errors.Refused) as caught:
        work(*arguments)
    return caught.value


# --- what is new


def test_a_rotation_begins_with_the_root_that_signs_and_the_new_one():
    other = making.ca("other")
    made = record(dataclasses.replace(OLD, anchors=other.pem + OLD.anchors))
    assert (made.state.old, made.state.new, made.state.next) == (OLD_SIGNER, NEW_SIGNER, Step.ADD)
    assert (made.old, made.new) == (OLD, NEW)
    assert (made.staying, made.leaving) == (NEW, OLD)


def test_an_issuer_that_is_not_of_the_new_root_is_refused():
    third = issuer.generate(NOW)
    wrong = dataclasses.replace(NEW, anchors=third.anchors)
    assert refused(rotation.begun, OLD, wrong, MESH, NOW).reason == "IssuerNotTrusted"


def signed(root, *, key=None, **more):
    made = making.ca("issuer", root, key=key, path_length=0, **more)
    return issuer.Material(made.pem, made.key_pem, root.pem)


def test_a_root_or_an_issuer_with_a_key_in_use_is_refused():
    root = making.ca("root", not_after=NOW + 900 * HOUR)
    there = signed(root)
    again = making.ca("root again", key=root.key, not_after=NOW + 900 * HOUR)
    for wrong in (signed(root), signed(again)):
        assert refused(rotation.begun, there, wrong, MESH, making.NOW).reason == "RootInUse"
    other = making.ca("other")
    same_key = making.ca("issuer", other, key=_key_of(there), path_length=0)
    wrong = issuer.Material(same_key.pem, same_key.key_pem, other.pem)
    assert refused(rotation.begun, there, wrong, MESH, making.NOW).reason == "IssuerInUse"
    # One that is trusted already, but does not sign, may come to sign.
    both = dataclasses.replace(there, anchors=there.anchors + other.pem)
    assert rotation.begun(both, signed(other), MESH, making.NOW).state.next is Step.ADD


def _key_of(material):
    from cryptography.hazmat.primitives import serialization

    return serialization.load_pem_private_key(material.key, None)


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (dataclasses.replace(NEW, anchors=NEW.anchors + making.ca("two").pem), "OneRoot"),
        (dataclasses.replace(NEW, anchors=NEW.anchors * 2000), "BadTrustAnchor"),
        (dataclasses.replace(NEW, anchors=b""), "NoTrustAnchors"),
        (dataclasses.replace(NEW, key=OLD.key), "IssuerKeyMismatch"),
    ],
)
def test_what_is_new_is_judged_first(new, reason):
    assert refused(rotation.begun, OLD, new, MESH, NOW).reason == reason


def test_a_root_that_is_over_or_no_ca_is_refused():
    over = signed(making.ca("over", not_before=making.NOW - 900 * HOUR, not_after=making.NOW - HOUR))
    assert refused(rotation.begun, signed(making.ca("root")), over, MESH, making.NOW).reason == "IssuerNotTrusted"
    no_ca = dataclasses.replace(over, anchors=making.leaf(making.ca("root")).pem)
    assert refused(rotation.begun, signed(making.ca("root")), no_ca, MESH, making.NOW).reason == "BadTrustAnchor"


def test_there_is_an_end_to_anchors():
    crowd = b"".join(making.ca(f"root {number}").pem for number in range(rotation.MOST_ANCHORS - 1))
    there = dataclasses.replace(OLD, anchors=OLD.anchors + crowd)
    assert refused(rotation.begun, there, NEW, MESH, NOW).reason == "TooManyAnchors"


# --- what is written


def test_the_steps_forward_write_anchors_issuer_and_anchors():
    begun, trust, done = rotation.writes(record(), stored(bundle(OLD)), NOW)
    assert isinstance(begun, rotation.Note)
    assert begun.record.state.doing is Step.ADD
    assert trust == rotation.Trust(BOTH)
    assert isinstance(done, rotation.Note)
    assert (done.record.state.doing, done.record.state.next) == (None, Step.SWITCH)
    begun, sign, told, done = rotation.writes(done.record, stored(), NOW)
    assert (sign, told) == (rotation.Sign(NEW), rotation.Trust(BOTH, NEW_SIGNER[:16]))
    assert isinstance(done, rotation.Note)
    assert done.record.state.next is Step.RETIRE
    begun, trust, forget = rotation.writes(done.record, stored(signer=NEW_SIGNER), NOW)
    assert isinstance(begun, rotation.Note)
    assert begun.record.state.doing is Step.RETIRE
    assert (trust, forget) == (rotation.Trust(bundle(NEW)), rotation.Forget())
    # Done again after a crash, it comes to the same.
    _, trust, forget = rotation.writes(begun.record, stored(bundle(NEW), NEW_SIGNER), NOW)
    assert (trust, forget) == (rotation.Trust(bundle(NEW)), rotation.Forget())


@pytest.mark.parametrize("anchors", [bundle(OLD), BOTH])
def test_before_the_switch_the_way_back_drops_the_new_root(anchors):
    made = after(*(ADDED if anchors is BOTH else ()), undone=True)
    assert made.state.next is Step.DROP
    assert anchor_waits.waits(made, known(agent("a/b", OLD_ROOT)), NOW) == ()
    _, trust, forget = rotation.writes(made, stored(anchors), NOW)
    assert (trust, forget) == (rotation.Trust(bundle(OLD)), rotation.Forget())


def test_after_the_switch_the_two_change_places():
    made = after(*SWITCHED, undone=True)
    assert (made.state.next, made.staying, made.leaving) == (Step.SWITCH, OLD, NEW)
    _, sign, told, done = rotation.writes(made, stored(signer=NEW_SIGNER), LATER)
    assert (sign, told) == (rotation.Sign(OLD), rotation.Trust(BOTH, OLD_SIGNER[:16]))
    assert isinstance(done, rotation.Note)
    (wait,) = anchor_waits.waits(done.record, known(agent("a/b", OLD_ROOT, NEW_ROOT, signer=NEW_SIGNER)), LATER + HOUR)
    assert "of the new issuer" in wait.sentence
    assert anchor_waits.waits(done.record, known(agent("a/b", OLD_ROOT, NEW_ROOT)), LATER + HOUR) == ()
    _, trust, _ = rotation.writes(done.record, stored(), LATER)
    assert trust == rotation.Trust(bundle(OLD))
    # And forward once more.
    assert rotation.undone(done.record).staying == NEW


def test_there_is_no_way_back_once_the_root_is_being_taken_away():
    made = after(*SWITCHED)
    begun = dataclasses.replace(made, state=trust_rotation.begin(made.state, Step.RETIRE, NOW))
    error = refused(rotation.undone, begun)
    assert (error.reason, error.hint) == (
        "TooLate",
        "finish it with `handfast mesh anchors rotate`, and begin another rotation if need be",
    )


def test_roots_of_others_stay():
    other = making.ca("other")
    crowd = BOTH.add(other.der)
    _, trust, _ = rotation.writes(record(), stored(bundle(OLD).add(other.der)), NOW)
    assert trust == rotation.Trust(crowd)
    _, trust, _ = rotation.writes(after(*SWITCHED), stored(crowd, NEW_SIGNER), NOW)
    assert trust == rotation.Trust(bundle(NEW).add(other.der))


def test_every_certificate_of_a_retired_key_goes():
    root, other = making.ca("root"), making.ca("other")
    again = making.ca("root again", key=root.key)
    made = rotation.begun(signed(root), signed(other), MESH, making.NOW)
    for step in SWITCHED:
        state = trust_rotation.finish(trust_rotation.begin(made.state, step, NOW), step, NOW)
        made = dataclasses.replace(made, state=state)
    crowd = bundles.TrustBundle.of([root.der, again.der, other.der])
    _, trust, _ = rotation.writes(made, rotation.Stored(crowd, made.state.new), NOW)
    assert trust == rotation.Trust(bundles.TrustBundle.of([other.der]))


# --- what others do meanwhile


@pytest.mark.parametrize(
    ("made", "there"),
    [
        (record(), stored(bundle(NEW))),
        (after(*ADDED), stored(bundle(OLD))),
        (after(*ADDED), stored(bundle(NEW))),
        (after(*ADDED), stored(signer="another")),
        (after(*SWITCHED), stored(bundle(OLD), NEW_SIGNER)),
        (after(*SWITCHED), stored(signer="another")),
        (after(*SWITCHED), stored()),
        (after(*ADDED, undone=True), stored(signer=NEW_SIGNER)),
        (after(*ADDED, undone=True), stored(bundle(NEW))),
    ],
)
def test_what_somebody_changed_meanwhile_stops_it(made, there):
    assert refused(rotation.writes, made, there, NOW).reason == "MeshChangedMeanwhile"


def test_an_issuer_that_was_put_back_is_switched_once_more():
    made = after(*SWITCHED)
    again = rotation.resumed(made, stored())
    assert again.state.next is Step.SWITCH
    assert isinstance(rotation.writes(again, stored(), NOW)[1], rotation.Sign)
    assert rotation.resumed(made, stored(signer=NEW_SIGNER)) is made
    for other in (record(), after(*ADDED)):
        assert rotation.resumed(other, stored()) is other


# --- waiting


def test_the_switch_waits_for_every_agent_by_name():
    made = after(*ADDED)
    seen = known(agent("shop/web-1", OLD_ROOT), agent("shop/web-2", OLD_ROOT, NEW_ROOT))
    assert sentences(made, seen) == ["the new root is not acknowledged by 1 agent: shop/web-1"]
    crowd = known(*(agent(f"shop/web-{number:02}", OLD_ROOT) for number in range(12)))
    (sentence,) = sentences(made, crowd)
    assert sentence.startswith("the new root is not acknowledged by 12 agents: shop/web-00, shop/web-01")
    assert sentence.endswith("shop/web-09 and 2 more")
    assert sentences(made, known(agent("shop/web-1", OLD_ROOT, NEW_ROOT))) == []


def test_a_stock_proxy_with_the_old_root_alone_holds_up_the_switch_and_the_end():
    text = "the new root is not in the variables of 1 Pod without an agent; start again: shop/old-1"
    assert sentences(after(*ADDED), known(stock("shop/old-1", OLD_ROOT))) == [text]
    assert sentences(after(*SWITCHED), known(stock("shop/old-1", OLD_ROOT, signer=NEW_SIGNER))) == [text]
    assert sentences(after(*SWITCHED), known(stock("shop/old-1", OLD_ROOT, NEW_ROOT, signer=NEW_SIGNER))) == []


def test_one_of_which_nothing_is_known_holds_it_up():
    odd = dataclasses.replace(stock("shop/odd-1"), kind=believers.Kind.UNKNOWN)
    assert sentences(after(*ADDED), known(odd)) == [
        "nobody knows whom 1 Pod with a certificate and without an agent believes: shop/odd-1"
    ]


def test_those_who_follow_are_given_some_seconds():
    for made in (after(*ADDED), after(*SWITCHED)):
        (wait,) = anchor_waits.waits(made, known(), NOW + datetime.timedelta(seconds=1))
        assert wait.until == NOW + anchor_waits.NOTICE_TIME
        assert anchor_waits.waits(made, known(), NOW + anchor_waits.NOTICE_TIME) == ()


def test_the_end_waits_until_every_certificate_is_renewed():
    made = after(*SWITCHED)
    seen = known(
        agent("shop/web-1", NEW_ROOT),
        agent("shop/web-2", NEW_ROOT, signer=NEW_SIGNER),
        dataclasses.replace(agent("shop/web-3", NEW_ROOT), signers=frozenset(), until=None),
        loose=(
            believers.Loose("somebody", rotation.tag_of(OLD_SIGNER), NOW + 30 * HOUR),
            believers.Loose("another", rotation.tag_of(NEW_SIGNER), NOW + 40 * HOUR),
        ),
    )
    (wait,) = anchor_waits.waits(made, seen, LATER)
    assert wait.sentence == (
        "2 have a certificate of the old issuer; the last ends 2026-11-18T18:00:00Z: shop/web-1, somebody"
    )
    assert wait.until == NOW + 30 * HOUR
    (single,) = anchor_waits.waits(made, known(agent("shop/web-1", NEW_ROOT)), LATER)
    assert single.sentence.startswith("1 has a certificate of the old issuer; ")


def test_a_step_that_was_begun_and_the_first_one_wait_for_nobody():
    lagging = known(agent("shop/web-1", OLD_ROOT))
    made = after(*ADDED)
    begun = dataclasses.replace(made, state=trust_rotation.begin(made.state, Step.SWITCH, NOW))
    assert anchor_waits.waits(begun, lagging, NOW) == ()
    assert anchor_waits.waits(record(), lagging, NOW) == ()


def test_who_goes_on_believing_the_root_that_is_gone_is_named():
    seen = known(
        agent("shop/web-1", OLD_ROOT, NEW_ROOT),
        stock("shop/old-1", OLD_ROOT, NEW_ROOT),
        stock("shop/old-2", NEW_ROOT),
    )
    assert anchor_waits.keep_believing(after(*SWITCHED), seen) == ("shop/old-1",)


# --- the written form


@pytest.mark.parametrize("made", [record(), after(*SWITCHED), after(*SWITCHED, undone=True)])
def test_a_record_is_read_as_it_was_written(made):
    assert rotation.decode(rotation.encode(made)) == made
    assert all(repr(key)[2:-1] not in repr(made) for key in (OLD.key, NEW.key))


@pytest.mark.parametrize(
    "damage",
    [
        lambda _data: {},
        lambda data: {**data, "state.json": b"{}"},
        lambda data: {**data, "new-tls.crt": data["old-tls.crt"]},
        lambda data: {**data, "old-tls.crt": b"x"},
        lambda data: {
            **data,
            "state.json": trust_rotation.encode(dataclasses.replace(record().state, target=trust_rotation.Target.CA)),
        },
    ],
)
def test_a_damaged_record_is_refused(damage):
    assert refused(rotation.decode, damage(rotation.encode(record()))).reason == "BadRotationState"


def test_the_cases_are_what_they_say():
    assert {anchor.fingerprint for anchor in BOTH.anchors} == {OLD_ROOT, NEW_ROOT}
    assert cases.MESH == MESH
