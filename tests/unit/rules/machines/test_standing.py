# SPDX-License-Identifier: Apache-2.0
"""Whether the credential that a request came by is still the one that counts."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from handfast.rules.certificates import kubelet
from handfast.rules.machines import approval, bootstrapper, standing
from tests.unit.rules.csr_cases import csr

AT = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
LATER = AT + datetime.timedelta(seconds=1)
CERTIFICATE, TOKEN, OWN = ["X509SHA256=ab"], None, ["JTI=a"]
FIRST, SECOND = standing.TRUST
SECRET, NEXT = standing.TOKEN


def step(
    ids: list[str] | None,
    created: dict[standing.Place, datetime.datetime],
    *,
    user: str = bootstrapper.USER,
    **refusals: str,
) -> approval.Step:
    extra: dict[str, Any] = {} if ids is None else {"extra": {"authentication.kubernetes.io/credential-id": ids}}
    places = {place: refusals[place[0]] for place in standing.PLACES if place[0] in refusals}
    return standing.step(kubelet.read(csr(user=user, **extra)), AT, standing.Objects(created, places))


@pytest.mark.parametrize(
    ("ids", "place"), [(CERTIFICATE, FIRST), (CERTIFICATE, SECOND), (TOKEN, SECRET), (TOKEN, NEXT)]
)
def test_an_object_that_is_as_old_as_the_request_lets_it_stand(ids, place):
    verdict = step(ids, {place: AT})
    assert verdict.check.passed
    assert place[2] in verdict.check.compared


@pytest.mark.parametrize(("ids", "others"), [(CERTIFICATE, {SECRET: AT}), (TOKEN, {FIRST: AT, SECOND: AT})])
def test_a_credential_that_was_revoked_takes_its_requests_along(ids, others):
    verdict = step(ids, others)
    assert verdict.reason == "BootstrapCredentialGone"
    assert "is not there" in verdict.check.compared
    assert "have the kubelet ask again" in verdict.change


@pytest.mark.parametrize(("ids", "place"), [(CERTIFICATE, FIRST), (CERTIFICATE, SECOND), (TOKEN, SECRET)])
def test_a_credential_that_was_made_anew_does_not_bring_old_requests_back(ids, place):
    verdict = step(ids, {place: LATER})
    assert verdict.reason == standing.REVOKED
    assert "is of 2030-01-01T00:00:01Z, after it" in verdict.check.compared


def test_a_request_by_the_next_token_is_not_judged_by_the_age_of_the_other():
    # The first was deleted after the roll-out, and made anew.
    assert step(TOKEN, {SECRET: LATER, NEXT: AT}).check.passed
    assert step(TOKEN, {SECRET: LATER, NEXT: LATER}).reason == standing.REVOKED


@pytest.mark.parametrize(("ids", "user"), [(OWN, bootstrapper.USER), (CERTIFICATE, "installer"), (TOKEN, "installer")])
def test_tokens_of_machines_and_other_identities_stand_on_no_object(ids, user):
    assert step(ids, {}, user=user).check.passed


def test_what_may_not_be_read_is_not_known_to_be_there():
    verdict = step(TOKEN, {}, Secret="secrets is forbidden")
    assert verdict.reason == "BootstrapCredentialsForbidden"
    assert "secrets is forbidden" in verdict.check.compared
    assert "--print-manifest" in verdict.change
    # One of two is enough, if it can be read.
    assert step(CERTIFICATE, {SECOND: AT}, ConfigMap="configmaps is forbidden").check.passed


@pytest.mark.parametrize(
    ("created", "deleting", "expected"),
    [
        ("2030-01-01T00:00:00Z", None, AT),
        ("2030-01-01T00:00:00Z", "2030-01-01T00:00:00Z", None),
        ("", None, None),
        (None, "", None),
    ],
)
def test_an_object_that_is_being_deleted_is_gone(created, deleting, expected):
    assert standing.instant(created, deleting) == expected


def test_a_secret_that_is_only_called_so_lets_no_request_stand():
    name = "kubernetes.io/service-account.name"
    assert standing.counts(NEXT, {name: "node-bootstrapper"})
    assert not standing.counts(NEXT, {})
    assert not standing.counts(NEXT, {name: "default"})
    # The keeper of the first one sees to it that it is the account's.
    assert standing.counts(SECRET, {})
