# SPDX-License-Identifier: Apache-2.0
"""The injector's pair: when a next one is made, when it is served, and what is believed meanwhile."""

from __future__ import annotations

import base64
import datetime

import pytest

from handfast.pki import bundles, certificates, chains, pairs, pem
from handfast.rules.mesh import injector_pair, settings

NAME = "linkerd-proxy-injector.linkerd.svc"
NOW = datetime.datetime(2026, 11, 17, 12, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
CHOSEN = settings.Settings()
Step = injector_pair.Step


def make(now: datetime.datetime = NOW, name: str = NAME) -> pairs.Pair:
    return injector_pair.make(name, CHOSEN, now)


def begun(now: datetime.datetime = NOW) -> injector_pair.Stored:
    return injector_pair.after(injector_pair.Stored(), Step.BEGIN, make(now))


def reread(stored: injector_pair.Stored, now: datetime.datetime) -> injector_pair.Stored:
    return injector_pair.read(injector_pair.data(stored), NAME, now)


def step(stored: injector_pair.Stored, now: datetime.datetime, *, settled: bool = False) -> Step:
    return injector_pair.step(stored, now=now, settled=settled)


def test_a_new_pair_is_believed_by_its_root_for_the_name_of_the_service():
    pair = make()
    anchors = bundles.TrustBundle.of([pair.chain[-1]])
    shown = injector_pair.shown(pair)
    leaf = chains.verify(list(shown.chain), anchors, chains.Server(NAME), NOW)
    assert leaf.not_after == NOW + CHOSEN.injector_lifetime - CHOSEN.skew
    assert (leaf.not_before, len(shown.chain)) == (NOW - CHOSEN.skew, 1)


def test_the_roots_key_is_kept_nowhere():
    stored = begun()
    assert stored.pair is not None
    root = certificates.read(stored.pair.chain[-1])
    assert (root.is_ca, root.path_length) == (True, 0)
    assert stored.pair.key.public.spki != root.public_key.spki
    assert {key for key, value in injector_pair.data(stored).items() if value} == {"tls.crt", "tls.key", "ca.crt"}


def test_what_is_stored_is_read_back():
    stored = begun()
    assert reread(stored, NOW) == stored
    prepared = injector_pair.after(stored, Step.PREPARE, make())
    assert reread(prepared, NOW) == prepared


def test_a_next_pair_is_made_from_70_to_90_percent_of_its_life():
    stored = begun()
    assert stored.pair is not None
    due, leaf = injector_pair.due(stored.pair), stored.pair.leaf
    part = (due - leaf.not_before) / (leaf.not_after - leaf.not_before)
    assert 0.7 <= part <= 0.9
    assert step(stored, due - datetime.timedelta(seconds=1)) is Step.NOTHING
    assert step(stored, due) is Step.PREPARE
    # Replicas agree, since it depends on the certificate alone.
    again = reread(stored, NOW).pair
    assert again is not None
    assert injector_pair.due(again) == due


def test_a_next_pair_is_served_only_once_its_root_is_known():
    stored, later = begun(), NOW + 6 * DAY
    prepared = injector_pair.after(stored, Step.PREPARE, make(later))
    assert prepared.pair == stored.pair
    assert prepared.following is not None
    assert injector_pair.is_believed(prepared.following, prepared.bundle)
    assert step(prepared, later) is Step.NOTHING
    assert step(prepared, later, settled=True) is Step.SWITCH
    switched = injector_pair.after(prepared, Step.SWITCH, make())
    assert (switched.pair, switched.following) == (prepared.following, None)
    # Both are believed, until the old one ends.
    assert stored.pair is not None
    assert injector_pair.is_believed(stored.pair, switched.bundle)
    assert reread(switched, later).roots == switched.roots
    assert switched.pair is not None
    assert reread(switched, NOW + 8 * DAY).roots == (switched.pair.chain[-1],)


def test_the_order_of_a_bundle_is_no_matter():
    prepared = injector_pair.after(begun(), Step.PREPARE, make())
    assert injector_pair.says(prepared, pem.certificates_to_pem(reversed(prepared.roots)))
    assert not injector_pair.says(prepared, pem.certificates_to_pem(prepared.roots[:1]))
    assert not injector_pair.says(prepared, b"")


def test_roots_do_not_grow_without_end():
    stored = begun()
    for _ in range(6):
        stored = injector_pair.after(injector_pair.after(stored, Step.PREPARE, make()), Step.SWITCH, make())
    assert len(stored.roots) == 4
    assert stored.pair is not None
    assert stored.roots[0] == stored.pair.chain[-1]


def test_an_empty_secret_is_a_new_pair_and_no_old_trust():
    stored = begun()
    emptied = injector_pair.read({"ca.crt": injector_pair.data(stored)["ca.crt"]}, NAME, NOW)
    assert (emptied.pair, emptied.roots) == (None, ())
    assert step(emptied, NOW) is Step.BEGIN
    fresh = injector_pair.after(emptied, Step.BEGIN, make())
    assert stored.pair is not None
    assert not injector_pair.is_believed(stored.pair, fresh.bundle)


def encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()


@pytest.mark.parametrize("case", ["garbage", "no base64", "another key", "another name", "over", "without its root"])
def test_a_pair_that_cannot_be_used_is_none(case):
    data = injector_pair.data(begun())
    now = NOW
    match case:
        case "garbage":
            data["tls.key"] = encoded(b"garbage")
        case "no base64":
            data["tls.crt"] = "%"
        case "another key":
            data["tls.key"] = injector_pair.data(begun())["tls.key"]
        case "another name":
            other = injector_pair.after(injector_pair.Stored(), Step.BEGIN, make(name="other.linkerd.svc"))
            data = injector_pair.data(other)
        case "over":
            now = NOW + 7 * DAY
        case _:
            leaf = pem.certificates_from_pem(base64.b64decode(str(data["tls.crt"])))[0]
            data["tls.crt"] = encoded(pem.encode(pem.CERTIFICATE, leaf))
    assert injector_pair.read(data, NAME, now).pair is None


def test_a_broken_bundle_is_made_again_from_the_pairs():
    stored = begun()
    for text in (b"", b"garbage", pem.encode(pem.CERTIFICATE, b"no certificate")):
        data = injector_pair.data(stored) | {"ca.crt": encoded(text)}
        assert injector_pair.read(data, NAME, NOW) == stored


def test_a_root_settles_for_a_part_of_its_life_and_ten_seconds_at_most():
    assert injector_pair.settling(make()) == datetime.timedelta(seconds=10)
    short = settings.Settings(injector_lifetime=datetime.timedelta(minutes=1))
    assert injector_pair.settling(injector_pair.make(NAME, short, NOW)) == datetime.timedelta(seconds=4)
