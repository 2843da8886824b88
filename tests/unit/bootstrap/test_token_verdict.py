# SPDX-License-Identifier: Apache-2.0
"""The verdict on a bootstrap token. The names of the table in `bootstrap/token_verdict.py` are here."""

from __future__ import annotations

import copy
import datetime
import hmac
from collections.abc import Callable
from typing import Any

import pytest

from handfast.bootstrap import token_verdict, tokens
from tests.unit.bootstrap.test_tokens import (
    BAD_GROUPS,
    BROKEN,
    GROUP,
    GROUPS,
    NO_GROUPS,
    NO_INSTANTS,
    NOW,
    TOKEN,
    at,
    document,
    encoded,
    refusal,
)

PLAIN = ("system:bootstrappers",)

ACCEPTED: dict[str, tuple[dict[str, Any], tuple[str, ...], datetime.datetime | None]] = {
    "valid": (document(), PLAIN, None),
    "extra group": (document(auth_extra_groups=f"{GROUP}foo"), (*PLAIN, f"{GROUP}foo"), None),
    "expires in 2109": (document(expiration="2109-11-10T23:00:00Z"), PLAIN, at(2109, 11, 10, 23)),
    "empty expiration": (document(expiration=""), PLAIN, None),
    "offset that is still to come": (
        document(expiration="2026-11-15T12:30:00-01:00"),
        PLAIN,
        at(2026, 11, 15, 13, 30),
    ),
    "unknown keys and usages": (document(usage_bootstrap_foo="true", other="x"), PLAIN, None),
}


@pytest.mark.parametrize(("made", "groups", "until"), ACCEPTED.values(), ids=ACCEPTED)
def test_a_good_token_is_accepted_and_its_secret_not_changed(
    made: dict[str, Any], groups: tuple[str, ...], until: datetime.datetime | None
) -> None:
    before = copy.deepcopy(made)
    assert token_verdict.verdict(made, TOKEN, NOW) == token_verdict.Accepted("system:bootstrap:foobar", groups, until)
    assert made == before


def deleting(made: dict[str, Any]) -> None:
    made["metadata"]["deletionTimestamp"] = "2026-11-15T11:59:59Z"


REJECTED: dict[str, tuple[dict[str, Any], int, str]] = {
    "being deleted": (document(deleting), 3, "TokenBeingDeleted"),
    "wrong type": (document(lambda made: made.update(type="Opaque")), 4, "WrongSecretType"),
    "empty data": (document(lambda made: made.update(data={})), 5, "WrongTokenSecret"),
    "wrong secret": (document(token_secret="circumnavigatioN"), 5, "WrongTokenSecret"),
    "no secret": (document(token_secret=None), 5, "WrongTokenSecret"),
    "empty secret": (document(token_secret=""), 5, "WrongTokenSecret"),
    "secret with a newline": (document(token_secret="circumnavigation\n"), 5, "WrongTokenSecret"),
    "the whole token as the secret": (document(token_secret=TOKEN.text), 5, "WrongTokenSecret"),
    "wrong id": (document(token_id="barfoo"), 6, "WrongTokenID"),
    "no id": (document(token_id=None), 6, "WrongTokenID"),
    "id with a newline": (document(token_id="foobar\n"), 6, "WrongTokenID"),
    "expired in 2009": (document(expiration="2009-11-10T23:00:00Z"), 7, "TokenExpired"),
    "expires now": (document(expiration="2026-11-15T12:00:00Z"), 7, "TokenExpired"),
    "offset that is past": (document(expiration="2026-11-15T12:30:00+01:00"), 7, "TokenExpired"),
    "garbage expiration": (document(expiration="garbage"), 7, "BadTokenExpiration"),
    "no usage": (document(usage_bootstrap_authentication=None), 8, "NotForAuthentication"),
    "usage false": (document(usage_bootstrap_authentication="false"), 8, "NotForAuthentication"),
    "usage True": (document(usage_bootstrap_authentication="True"), 8, "NotForAuthentication"),
    "usage with a newline": (document(usage_bootstrap_authentication="true\n"), 8, "NotForAuthentication"),
    "usage 1": (document(usage_bootstrap_authentication="1"), 8, "NotForAuthentication"),
    "for signing only": (
        document(usage_bootstrap_authentication=None, usage_bootstrap_signing="true"),
        8,
        "NotForAuthentication",
    ),
    "invalid group": (document(auth_extra_groups="foo"), 9, "BadBootstrapGroup"),
    "trailing comma in groups": (document(auth_extra_groups=f"{GROUP}foo,"), 9, "BadBootstrapGroup"),
    "two names of groups": (
        document(auth_extra_groups=f"{GROUP}foo", auth_groups=f"{GROUP}bar"),
        9,
        "BootstrapGroupsConflict",
    ),
}


@pytest.mark.parametrize(("made", "check", "reason"), REJECTED.values(), ids=REJECTED)
def test_the_first_check_that_fails_is_named(made: dict[str, Any], check: int, reason: str) -> None:
    found = token_verdict.verdict(made, TOKEN, NOW)
    assert isinstance(found, token_verdict.Rejected)
    assert (found.check, found.reason) == (check, reason)
    assert found.sentence
    assert TOKEN.secret not in found.sentence


FAULTS: dict[int, Callable[[dict[str, Any]], object]] = {
    3: deleting,
    4: lambda made: made.update(type="Opaque"),
    5: lambda made: made["data"].update({"token-secret": encoded("x" * 16)}),
    6: lambda made: made["data"].update({"token-id": encoded("barfoo")}),
    7: lambda made: made["data"].update({"expiration": encoded("garbage")}),
    8: lambda made: made["data"].pop("usage-bootstrap-authentication"),
    9: lambda made: made["data"].update({"auth-extra-groups": encoded("system:masters")}),
}


@pytest.mark.parametrize("first", FAULTS)
def test_the_first_fault_in_order_is_told(first: int) -> None:
    """With every fault from `first` on in the document, that one is named; and without a Secret, check 2."""
    made = document()
    for number, fault in FAULTS.items():
        if number >= first:
            fault(made)
    found = token_verdict.verdict(made, TOKEN, NOW)
    assert isinstance(found, token_verdict.Rejected)
    assert found.check == first
    unknown = token_verdict.verdict(made, TOKEN, NOW, known=False)
    assert isinstance(unknown, token_verdict.Rejected)
    assert (unknown.check, unknown.reason) == (2, "UnknownToken")


def test_the_checks_are_those_of_the_list() -> None:
    assert [number for number, _ in token_verdict.CHECKS] == list(range(2, 10))
    text = token_verdict.__doc__ or ""
    assert all(f"\n{number:2}. " in text for number in range(1, 11))


def test_an_unknown_id_takes_the_steps_of_a_wrong_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[object] = []
    genuine = hmac.compare_digest

    def counted(number: int, check: token_verdict.Check) -> tuple[int, token_verdict.Check]:
        def step(seen: token_verdict.Evidence) -> tuple[str, str] | None:
            steps.append(number)
            return check(seen)

        return number, step

    def compare(one: bytes, other: bytes) -> bool:
        steps.append((len(one), len(other)))
        return genuine(one, other)

    monkeypatch.setattr(token_verdict, "CHECKS", tuple(counted(*row) for row in token_verdict.CHECKS))
    monkeypatch.setattr(hmac, "compare_digest", compare)

    def taken(made: object, token: tokens.Token, *, known: bool = True) -> list[object]:
        steps.clear()
        token_verdict.verdict(made, token, NOW, known=known)
        return list(steps)

    wrong = taken(document(), tokens.Token("foobar", "x" * 16))
    assert wrong == [2, 3, 4, 5, (16, 16), 6, (6, 6), 7, 8, 9]
    assert taken(token_verdict.decoy(), tokens.Token("nobody", "x" * 16), known=False) == wrong
    assert taken(document(), TOKEN) == wrong
    assert taken(document(expiration="garbage"), TOKEN) == wrong
    assert taken(document(deleting), tokens.Token("foobar", "x" * 16)) == wrong


def test_the_decoy_opens_nothing() -> None:
    made = token_verdict.decoy()
    own = tokens.read(made).token
    assert isinstance(token_verdict.verdict(made, own, NOW), token_verdict.Accepted), "it is like any other Secret"
    found = token_verdict.verdict(made, own, NOW, known=False)
    assert isinstance(found, token_verdict.Rejected)
    assert found.reason == "UnknownToken"


@pytest.mark.parametrize("token", [TOKEN, tokens.Token("foobar", "x" * 16)])
def test_a_verdict_is_no_boolean(token: tokens.Token) -> None:
    with pytest.raises(TypeError, match="no truth value"):
        bool(token_verdict.verdict(document(), token, NOW))


def rejected(made: object) -> tuple[int, str, str]:
    found = token_verdict.verdict(made, TOKEN, NOW)
    assert isinstance(found, token_verdict.Rejected)
    return found.check, found.reason, found.sentence


@pytest.mark.parametrize("group", BAD_GROUPS.values(), ids=BAD_GROUPS)
def test_group_is_refused(group: str) -> None:
    assert rejected(document(auth_extra_groups=f"{GROUP}good,{group}"))[:2] == (9, "BadBootstrapGroup")


@pytest.mark.parametrize(("extra", "old", "added"), GROUPS.values(), ids=GROUPS)
def test_the_groups_of_the_secret_are_added(extra: str | None, old: str | None, added: tuple[str, ...]) -> None:
    accepted = token_verdict.verdict(document(auth_extra_groups=extra, auth_groups=old), TOKEN, NOW)
    assert isinstance(accepted, token_verdict.Accepted)
    assert accepted.groups == ("system:bootstrappers", *(GROUP + group for group in added))


@pytest.mark.parametrize(("extra", "old", "reason"), NO_GROUPS.values(), ids=NO_GROUPS)
def test_groups_are_refused(extra: str | None, old: str | None, reason: str) -> None:
    assert rejected(document(auth_extra_groups=extra, auth_groups=old))[:2] == (9, reason)


@pytest.mark.parametrize("text", NO_INSTANTS.values(), ids=NO_INSTANTS)
def test_what_cannot_be_read_has_expired(text: str) -> None:
    assert rejected(document(expiration=text))[:2] == (7, "BadTokenExpiration")


@pytest.mark.parametrize(("made", "reason"), BROKEN.values(), ids=BROKEN)
def test_a_broken_document_is_rejected(made: Any, reason: str) -> None:
    assert rejected(made) == (4, reason, refusal(lambda: tokens.read(made)).message)


def test_no_repr_shows_a_secret() -> None:
    wrong = token_verdict.verdict(document(), tokens.Token("foobar", "x" * 16), NOW)
    right = token_verdict.verdict(document(), TOKEN, NOW)
    evidence = token_verdict.Evidence(tokens.read(document()), None, TOKEN, NOW, known=True)
    for value in (wrong, right, evidence):
        for shown in (repr(value), str(value), f"{value}"):
            assert TOKEN.secret not in shown
            assert "x" * 16 not in shown


def test_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    genuine = hmac.compare_digest

    def recorded(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return genuine(one, other)

    monkeypatch.setattr(hmac, "compare_digest", recorded)
    pair = (b"circumnavigation", b"circumnavigatioX")
    token_verdict.verdict(document(), tokens.Token("foobar", pair[1].decode()), NOW)
    assert pair in compared
    # And nothing stands between that function and the answer.
    monkeypatch.setattr(hmac, "compare_digest", lambda *_: True)
    assert isinstance(token_verdict.verdict(document(), tokens.Token("foobar", "x" * 16), NOW), token_verdict.Accepted)
