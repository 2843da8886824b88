# SPDX-License-Identifier: Apache-2.0
"""What a token says holds, or no longer. The table of `service_account_tokens.py` is here."""

from __future__ import annotations

import dataclasses
import datetime

import pytest
from msgspec import structs

from handfast.rules.tokens import claims, service_accounts
from tests.unit.rules.token_cases import AT, BOUND, LEGACY, NODE, NOW, POD, SECRET, refused

SECOND = datetime.timedelta(seconds=1)


def test_one_audience_at_least_is_wanted():
    assert service_accounts.judge_audiences(("a", "b", "c"), ("c", "x", "a")) == ("c", "a")
    message = 'token audiences ["a" "b"] is invalid for the target audiences ["c"]'
    assert refused(service_accounts.judge_audiences, ("a", "b"), ("c",)) == ("WrongAudience", message)
    # Whole texts are compared, and no audience is wanted by nobody.
    for wanted in ((), ("",), ("A",), ("https://api/",)):
        assert refused(service_accounts.judge_audiences, ("a", "https://api"), wanted)[0] == "WrongAudience"


@pytest.mark.parametrize(
    ("change", "seconds", "expected"),
    [
        ({}, 0, None),
        ({}, -60, None),
        ({"issued_at": 0}, -60.001, ("NotYetValid", "service account token is not valid yet")),
        ({"not_before": 0}, -60.001, ("NotYetValid", "service account token is issued in the future")),
        ({}, 3600 + 60, None),
        ({}, 3600 + 60.001, ("Expired", "service account token has expired")),
        ({"expires": 0}, 0, ("Expired", "service account token has expired")),
        (
            {"expires": 0, "not_before": AT + 61},
            0,
            ("NotYetValid", "service account token is not valid yet"),
        ),
    ],
)
def test_a_token_counts_between_its_times_give_or_take_the_leeway(
    change: dict[str, int], seconds: float, expected: tuple[str, str] | None
):
    bound = structs.replace(BOUND, **change)
    now = NOW + datetime.timedelta(seconds=seconds)
    if expected is None:
        service_accounts.judge_times(bound, now)
    else:
        assert refused(service_accounts.judge_times, bound, now) == expected


class World:
    """What there is, by kind, namespace and name."""

    def __init__(self) -> None:
        self.objects = {
            ("ServiceAccount", "ns", "builder"): service_accounts.Stored("uid-sa"),
            ("Pod", "ns", "pod-1"): service_accounts.Stored("uid-pod"),
            ("Secret", "ns", "secret-1"): service_accounts.Stored("uid-secret"),
            ("Node", "", "node-1"): service_accounts.Stored("uid-node"),
        }
        self.asked: list[str] = []

    def find(self, kind: str, namespace: str, name: str) -> service_accounts.Stored | None:
        self.asked.append(kind)
        return self.objects.get((kind, namespace, name))


def test_the_account_must_be_the_same():
    world = World()
    service_accounts.judge_bound(BOUND, world.find, NOW)
    key = ("ServiceAccount", "ns", "builder")
    world.objects[key] = service_accounts.Stored("uid-sa", NOW - 60 * SECOND)
    service_accounts.judge_bound(BOUND, world.find, NOW)
    world.objects[key] = service_accounts.Stored("uid-sa", NOW - 61 * SECOND)
    assert refused(service_accounts.judge_bound, BOUND, world.find, NOW) == (
        "AccountGone",
        "service account ns/builder has been deleted",
    )
    world.objects[key] = service_accounts.Stored("uid-new")
    assert refused(service_accounts.judge_bound, BOUND, world.find, NOW) == (
        "AccountReplaced",
        "service account UID (uid-new) does not match claim (uid-sa)",
    )
    del world.objects[key]
    assert refused(service_accounts.judge_bound, BOUND, world.find, NOW) == (
        "AccountGone",
        'serviceaccounts "builder" not found',
    )
    assert world.asked == ["ServiceAccount"] * 5


@pytest.mark.parametrize(
    ("kind", "reference", "place"),
    [
        ("Pod", POD, ("Pod", "ns", "pod-1")),
        ("Secret", SECRET, ("Secret", "ns", "secret-1")),
        ("Node", NODE, ("Node", "", "node-1")),
    ],
)
def test_bound_objects_must_be_the_same(kind: str, reference: claims.Reference, place: tuple[str, str, str]):
    bound = structs.replace(BOUND, **{kind.lower(): reference})
    world = World()
    service_accounts.judge_bound(bound, world.find, NOW)
    assert world.asked == ["ServiceAccount", kind]
    world.objects[place] = service_accounts.Stored(reference.uid, NOW - 60 * SECOND)
    service_accounts.judge_bound(bound, world.find, NOW)
    # A Pod that is still given its time to end.
    world.objects[place] = service_accounts.Stored(reference.uid, NOW + 30 * SECOND)
    service_accounts.judge_bound(bound, world.find, NOW)
    invalidated = ("BoundObjectGone", "service account token has been invalidated")
    world.objects[place] = service_accounts.Stored(reference.uid, NOW - 61 * SECOND)
    assert refused(service_accounts.judge_bound, bound, world.find, NOW) == invalidated
    word = kind.lower()
    world.objects[place] = service_accounts.Stored("uid-new")
    assert refused(service_accounts.judge_bound, bound, world.find, NOW) == (
        "BoundObjectReplaced",
        f"{word} UID (uid-new) does not match service account {word} ref claim ({reference.uid})",
    )
    del world.objects[place]
    assert refused(service_accounts.judge_bound, bound, world.find, NOW) == invalidated


def test_the_node_of_a_pod_only_tells():
    world = World()
    del world.objects["Node", "", "node-1"]
    service_accounts.judge_bound(structs.replace(BOUND, pod=POD, node=NODE), world.find, NOW)
    assert world.asked == ["ServiceAccount", "Pod"]


HELD = service_accounts.StoredSecret(b"the.token.itself")
MARKED = (
    "the token in secret ns/builder-token for service account ns/builder has been marked invalid. Use tokens from the "
    "TokenRequest API or manually created secret-based tokens, or remove the "
    "'kubernetes.io/legacy-token-invalid-since' label from the secret to temporarily allow use of this token"
)


@pytest.mark.parametrize(
    ("secret", "account", "expected"),
    [
        (HELD, service_accounts.Stored("uid-sa"), None),
        (None, service_accounts.Stored("uid-sa"), ("SecretGone", "Token has been invalidated")),
        (
            dataclasses.replace(HELD, deleting=True),
            service_accounts.Stored("uid-sa"),
            ("SecretGone", "Token has been invalidated"),
        ),
        (
            dataclasses.replace(HELD, token=b"the.token.refilled"),
            service_accounts.Stored("uid-sa"),
            ("TokenReplaced", "Token does not match server's copy"),
        ),
        (
            dataclasses.replace(HELD, token=b""),
            service_accounts.Stored("uid-sa"),
            ("TokenReplaced", "Token does not match server's copy"),
        ),
        (HELD, None, ("AccountGone", 'serviceaccounts "builder" not found')),
        (
            HELD,
            service_accounts.Stored("uid-sa", NOW),
            ("AccountGone", "ServiceAccount ns/builder has been deleted"),
        ),
        (
            HELD,
            service_accounts.Stored("uid-new"),
            ("AccountReplaced", "ServiceAccount UID (uid-new) does not match claim (uid-sa)"),
        ),
        (
            dataclasses.replace(HELD, invalid_since="2026-05-01"),
            service_accounts.Stored("uid-sa"),
            ("MarkedInvalid", MARKED),
        ),
    ],
)
def test_legacy_tokens(
    secret: service_accounts.StoredSecret | None,
    account: service_accounts.Stored | None,
    expected: tuple[str, str] | None,
):
    if expected is None:
        service_accounts.judge_legacy(LEGACY, "the.token.itself", secret, account)
    else:
        assert refused(service_accounts.judge_legacy, LEGACY, "the.token.itself", secret, account) == expected
    assert "the.token" not in repr(secret)
