# SPDX-License-Identifier: Apache-2.0
"""What somebody showed: certificates are verified by the CAs of the moment, and remembered while that holds."""

from __future__ import annotations

import datetime
from typing import Any, cast

import pytest
from aiohttp import test_utils

from handfast.machines import callers
from handfast.pki import authority, chains, keys, names, profiles
from handfast.rules import user_names
from handfast.rules.machine_config import requester
from handfast.serving import peer

NOW = datetime.datetime(2026, 11, 17, 12, tzinfo=datetime.UTC)
CA = authority.self_signed_ca(names.Subject(common_name="ca"), keys.generate(), NOW)
OTHER = authority.self_signed_ca(names.Subject(common_name="ca"), keys.generate(), NOW)
NODE = CA.issue(keys.generate().public, user_names.node_subject("n1"), names.Sans(), profiles.CLIENT, NOW).der


def read(people: callers.Callers, *chain: bytes, now: datetime.datetime = NOW) -> requester.Request:
    http = test_utils.make_mocked_request("GET", "/config/worker")
    cast("Any", http._protocol).peer = peer.Peer.of(chain, "192.0.2.1", "tls")
    return people.read(http, "worker", now)


@pytest.fixture
def people():
    made = callers.Callers()
    made.trust(CA.pem)
    return made


def test_a_chain_of_the_ca_says_who_it_is(people):
    request = read(people, NODE)
    assert request.certificate is not None
    assert request.certificate.subject.common_name == "system:node:n1"
    assert (request.address, request.refused) == ("192.0.2.1", "")


def test_a_chain_of_another_ca_is_not_believed(people):
    stranger = OTHER.issue(
        keys.generate().public, user_names.node_subject("n1"), names.Sans(), profiles.CLIENT, NOW
    ).der
    request = read(people, stranger)
    assert request.certificate is None
    assert request.refused


def test_a_ca_that_is_retired_counts_no_more_on_open_connections(people):
    assert read(people, NODE).certificate is not None
    people.trust(OTHER.pem)
    assert read(people, NODE).refused
    people.trust(None)
    assert read(people, NODE) == requester.Request(pool="worker", address="192.0.2.1")


def test_a_certificate_that_has_ended_is_verified_again_and_refused(people):
    assert read(people, NODE).certificate is not None
    assert read(people, NODE, now=NOW + datetime.timedelta(days=4000)).refused


def test_a_chain_is_verified_once(people, monkeypatch):
    verify, seen = chains.verify, []

    def counted(*words: Any) -> chains.Verified:
        seen.append(1)
        return verify(*words)

    monkeypatch.setattr(chains, "verify", counted)
    monkeypatch.setattr(callers, "_REMEMBERED", 1)
    for _ in range(3):
        read(people, NODE)
    assert len(seen) == 1
    other = CA.issue(keys.generate().public, user_names.node_subject("n2"), names.Sans(), profiles.CLIENT, NOW).der
    read(people, other)
    read(people, NODE)
    assert len(seen) == 3


def test_without_a_certificate_nothing_is_shown(people):
    assert read(people) == requester.Request(pool="worker", address="192.0.2.1")
