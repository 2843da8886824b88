# SPDX-License-Identifier: Apache-2.0
"""Properties of the pki room: reading undoes writing, one encoding per value, and garbage is refused, never a crash."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import string
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handfast import errors
from handfast.pki import (
    authority,
    bundles,
    certificates,
    chains,
    keys,
    names,
    pem,
    pins,
    profiles,
    requests,
    seal,
    usages,
)

NOW = datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC)
KEY = keys.generate()
ROOT = authority.self_signed_ca(names.Subject(common_name="root"), keys.generate(), NOW)
TRUST = bundles.TrustBundle.from_pem(ROOT.pem)
REQUEST = requests.parse(requests.build(names.Subject(common_name="a"), names.Sans.parse(["DNS:a"]), KEY)).der
SEALER = seal.Sealer.from_text(seal.generate_line("k"))

words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=80)
labels = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=20)
hosts = st.lists(labels, min_size=1, max_size=4).map(".".join)
subjects = st.builds(
    names.Subject,
    common_name=words,
    organizations=st.lists(words, max_size=3, unique=True).map(lambda all_: tuple(sorted(all_))),
)
sans = st.builds(
    names.Sans,
    dns=st.lists(hosts, max_size=3).map(tuple),
    ip=st.lists(st.ip_addresses(), max_size=3).map(tuple),
    uri=st.lists(hosts.map("spiffe://{}/a".format), max_size=2).map(tuple),
    email=st.lists(hosts.map("jane@{}".format), max_size=2).map(tuple),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=4))
def test_pem_reading_undoes_writing(ders: list[bytes]):
    written = pem.certificates_to_pem(ders)
    assert pem.certificates_from_pem(written) == ders
    assert pem.certificates_to_pem(pem.certificates_from_pem(written)) == written


@settings(max_examples=100, deadline=None)
@given(subjects, sans)
def test_a_request_says_what_was_put_in(subject: names.Subject, asked: names.Sans):
    request = requests.parse(requests.build(subject, asked, KEY))
    assert request.subject.common_name == subject.common_name
    assert set(request.subject.organizations) == set(subject.organizations)
    assert request.sans == asked


@settings(max_examples=60, deadline=None)
@given(subjects, sans, st.sampled_from([profiles.CLIENT, profiles.KUBELET_SERVING]))
def test_what_is_issued_verifies_for_its_purpose_only(
    subject: names.Subject, asked: names.Sans, profile: profiles.Profile
):
    asked = dataclasses.replace(asked, dns=("a.example", *asked.dns))
    der = ROOT.issue(KEY.public, subject, asked, profile, NOW).der
    client, server = chains.Client(), chains.Server("a.example")
    own, other = (client, server) if usages.CLIENT_AUTH in profile.usages else (server, client)
    verified = chains.verify([der], TRUST, own, NOW)
    assert verified.subject.common_name == subject.common_name
    assert verified.sans == asked
    with pytest.raises(chains.ChainRefused) as caught:
        chains.verify([der], TRUST, other, NOW)
    assert caught.value.reason == "WrongPurpose"


@settings(max_examples=100, deadline=None)
@given(subjects)
def test_subject_text_is_read_back(subject: names.Subject):
    again = names.Subject.parse(str(subject))
    assert again.common_name == subject.common_name
    assert set(again.organizations) == set(subject.organizations)
    assert str(again) == str(subject)


@settings(max_examples=100, deadline=None)
@given(sans)
def test_alternative_names_are_read_back(asked: names.Sans):
    assert names.Sans.parse(asked.texts()) == asked


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300), st.data())
def test_garbage_is_refused_and_what_was_damaged_is_never_a_crash(garbage: bytes, data: st.DataObject):
    good = data.draw(st.sampled_from([ROOT.certificate.der, REQUEST]))
    at = data.draw(st.integers(0, len(good)))
    mutated = good[:at] + garbage[:4] + good[at + data.draw(st.integers(0, 4)) :]
    readers: tuple[Callable[[bytes], object], ...] = (
        certificates.read,
        requests.parse_der,
        keys.public_from_spki,
        pins.of_certificate,
        lambda der: chains.verify([der, ROOT.certificate.der], TRUST, chains.Client(), NOW),
        lambda der: keys.private_from_pem(pem.encode(pem.PRIVATE_KEY, der)),
        lambda der: requests.parse(pem.encode(pem.CERTIFICATE_REQUEST, der)),
    )
    for read in readers:
        with pytest.raises(errors.Refused):
            read(garbage)
        # It may be as good as it was, or in a place that nobody looks at.
        with contextlib.suppress(errors.Refused):
            read(mutated)
    for read in (keys.private_from_pem, requests.parse):
        with pytest.raises(errors.Refused):
            read(garbage)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.binary(max_size=50), st.binary(max_size=50))
def test_a_seal_opens_in_its_place_only(value: bytes, place: bytes, other: bytes):
    key_id, sealed = SEALER.seal(value, place)
    assert SEALER.unseal(key_id, sealed, place) == value
    if other != place:
        with pytest.raises(errors.Refused) as caught:
            SEALER.unseal(key_id, sealed, other)
        assert caught.value.reason == "SealBroken"


@settings(max_examples=100, deadline=None)
@given(
    st.datetimes(
        min_value=datetime.datetime(2020, 1, 1),
        max_value=datetime.datetime(2060, 1, 1),
        timezones=st.just(datetime.UTC),
    ),
    st.timedeltas(max_value=datetime.timedelta(days=9999)),
)
def test_a_window_holds_now_and_is_never_longer_than_permitted(now: datetime.datetime, ttl: datetime.timedelta):
    begins, ends = profiles.CLIENT.window(now, ttl)
    assert begins < now < ends
    assert ends - begins <= profiles.CLIENT.lifetime + profiles.BACKDATE
