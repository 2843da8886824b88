# SPDX-License-Identifier: Apache-2.0
"""Who is revoked. The names of the table in `rules/revocation.py` are here."""

from __future__ import annotations

import datetime

import pytest

from handfast.rules import decision, revocation
from handfast.rules.certificates import kubelet
from handfast.rules.revocation import Revocation
from tests.unit.rules import csr_cases

NOW = datetime.datetime(2026, 6, 1, 12, 0, tzinfo=datetime.UTC)
SECOND = datetime.timedelta(seconds=1)
KEY = "ab" * 32
OTHER_KEY = "cd" * 32


def index(*rows: Revocation) -> revocation.Index:
    made = revocation.Index()
    for row in rows:
        made.add(row)
    return made


def refusal(
    asked: revocation.Index,
    user: str,
    *,
    serial: str = "",
    key: str = "",
    node: str = "",
    pod: str = "",
    now: datetime.datetime = NOW,
) -> str:
    """The sentence of a refusal; empty if somebody is let in."""
    verdict = asked.judge(user, serial, key, node, now, pod)
    if isinstance(verdict, decision.NotMine):
        assert verdict.reason == "NotRevoked"
        return ""
    assert (verdict.reason, verdict.rule) == ("Revoked", "revocation")
    return verdict.sentence


STOLEN = index(Revocation(name="node-a", node="a", reason="stolen"))


def test_nobody_is_revoked_at_first():
    empty = revocation.Index()
    assert len(empty) == 0
    assert refusal(empty, "system:node:a", serial="1", key=KEY, node="a") == ""


def test_all_of_them_can_be_looked_through():
    assert [each.name for each in STOLEN] == ["node-a"]


def test_a_node_is_refused_by_its_user_name():
    assert refusal(STOLEN, "system:node:a") == 'user "system:node:a" is refused by Revocation "node-a": stolen'


def test_a_new_certificate_does_not_help():
    assert refusal(STOLEN, "system:node:a", serial="99", key=OTHER_KEY)


def test_tokens_of_its_pods_are_refused():
    pod = "system:serviceaccount:default:builder"
    assert refusal(STOLEN, pod, node="a") == 'node "a" is refused by Revocation "node-a": stolen'
    assert refusal(STOLEN, pod, node="b") == ""
    assert refusal(STOLEN, pod) == ""


def pod(name: str = "web-1", **more: str) -> Revocation:
    return revocation.read({"metadata": {"name": "p"}, "spec": {"pod": {"namespace": "shop", "name": name, **more}}})


def test_tokens_of_one_pod_are_refused():
    user = "system:serviceaccount:shop:web"
    asked = index(pod(uid="u-1"))
    assert refusal(asked, user, pod="shop/web-1/u-1") == (
        'pod "shop/web-1/u-1" is refused by Revocation "p": unspecified'
    )
    for other in ("shop/web-2/u-1", "prod/web-1/u-1", ""):
        assert refusal(asked, user, pod=other) == ""


def test_a_pod_made_anew_is_another():
    user = "system:serviceaccount:shop:web"
    assert refusal(index(pod(uid="u-1")), user, pod="shop/web-1/u-2") == ""
    assert refusal(index(pod()), user, pod="shop/web-1/u-2")
    assert refusal(index(pod()), user, pod="shop/web-1")
    assert refusal(index(pod("web")), user, pod="shop/web-1/u-2") == ""


@pytest.mark.parametrize("spec", [{}, {"namespace": "shop"}, {"name": "web-1"}, "web-1"])
def test_a_pod_that_cannot_be_understood_refuses_nobody(spec):
    read = revocation.read({"metadata": {"name": "p"}, "spec": {"pod": spec, "user": "jane"}})
    assert (read.pod, read.user) == ("", "jane")


def test_one_certificate():
    asked = index(Revocation(name="x", serial=revocation.normal_serial("0A:BC"), reason="lost"))
    assert refusal(asked, "jane", serial="0abc") == 'serial number "abc" is refused by Revocation "x": lost'
    assert refusal(asked, "jane", serial="abc0") == ""


def test_every_certificate_of_a_key():
    asked = index(Revocation(name="x", key_fingerprint=revocation.normal_key_fingerprint(f"sha256:{KEY.upper()}")))
    assert refusal(asked, "jane", serial="1", key=KEY)
    assert refusal(asked, "john", serial="2", key=KEY)
    assert refusal(asked, "jane", serial="1", key=OTHER_KEY) == ""


@pytest.mark.parametrize(
    "row",
    [
        Revocation(name="x", user="kubernetes-admin"),
        Revocation(name="x", serial="5"),
        Revocation(name="x", key_fingerprint=KEY),
    ],
)
def test_administrators_are_not_exempt(row):
    # The groups are not even asked for: nothing can be said that exempts.
    assert refusal(index(row), "kubernetes-admin", serial="05", key=KEY)


@pytest.mark.parametrize(
    "user", ["jan", "janet", "Jane", "jane ", "", "system:node:jane", "system:node:a.b", "a", "system:node:A"]
)
def test_others_are_let_in(user):
    assert refusal(index(Revocation(name="x", user="jane", node="a")), user) == ""


def test_each_target_of_one_revocation_is_refused():
    row = Revocation(name="x", user="jane", node="a", serial="5", key_fingerprint=KEY)
    asked = index(row)
    assert refusal(asked, "jane")
    assert refusal(asked, "system:node:a")
    assert refusal(asked, "john", serial="5")
    assert refusal(asked, "john", key=KEY)
    assert refusal(asked, "john", node="a")
    assert refusal(asked, "john", serial="6", key=OTHER_KEY, node="b") == ""


def test_it_ends_when_it_expires():
    asked = index(Revocation(name="x", user="jane", expires=NOW))
    assert refusal(asked, "jane", now=NOW - SECOND)
    assert refusal(asked, "jane", now=NOW) == ""


def test_an_ended_one_hides_no_other():
    ended = Revocation(name="a", user="jane", expires=NOW - SECOND)
    asked = index(ended, Revocation(name="b", user="jane", reason="again"))
    assert refusal(asked, "jane").endswith('Revocation "b": again')
    by_key = index(ended, Revocation(name="b", key_fingerprint=KEY))
    assert refusal(by_key, "jane", key=KEY)


def test_removing_takes_back_only_its_own():
    asked = index(Revocation(name="a", user="jane"), Revocation(name="b", user="jane"))
    asked.remove("a")
    assert len(asked) == 1
    assert refusal(asked, "jane")
    asked.remove("b")
    asked.remove("b")
    assert len(asked) == 0
    assert refusal(asked, "jane") == ""


def test_adding_again_replaces():
    asked = index(Revocation(name="a", user="jane"))
    asked.add(Revocation(name="a", user="john"))
    assert asked.get("a") == Revocation(name="a", user="john")
    assert asked.get("b") is None
    assert refusal(asked, "jane") == ""
    assert refusal(asked, "john")


def test_user_and_node_may_be_the_same():
    asked = index(Revocation(name="a", user="system:node:a", node="a"))
    assert refusal(asked, "system:node:a")
    asked.remove("a")
    asked.add(Revocation(name="b", user="jane"))
    assert refusal(asked, "system:node:a", node="a") == ""


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("7b", "7b"),
        ("7B", "7b"),
        ("0x7B", "7b"),
        ("0X7b", "7b"),
        ("007b", "7b"),
        ("00:7B:01", "7b01"),
        ("0", "0"),
        ("00:00", "0"),
        ("0x0", "0"),
        ("", ""),
    ],
)
def test_serial_numbers_are_compared_as_numbers(text, normal):
    assert revocation.normal_serial(text) == normal


def test_what_names_nothing_refuses_nobody():
    asked = index(Revocation(name="a"))
    assert refusal(asked, "", serial="", key="", node="") == ""
    asked.remove("a")
    assert len(asked) == 0


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (Revocation(name="x", node="a", reason="secret"), 'user "system:node:a" is refused by Revocation "x"'),
        (Revocation(name="x", user="system:node:a"), 'user "system:node:a" is refused by Revocation "x"'),
        (
            Revocation(name="x", key_fingerprint=csr_cases.KEY.public.fingerprint),
            f'key "{csr_cases.KEY.public.fingerprint}" is refused by Revocation "x"',
        ),
        (Revocation(name="x", node="b"), ""),
        (Revocation(name="x", node="a", expires=NOW), ""),
        (None, ""),
    ],
    ids=["node", "user", "key", "another node", "ended", "none"],
)
def test_requests_for_whom_is_revoked(row: Revocation | None, says: str):
    """And who asks is not told why."""
    asked = index() if row is None else index(row)
    verdict = asked.judge_request(kubelet.read(csr_cases.csr(user="system:bootstrap:abcdef")), NOW)
    assert isinstance(verdict, decision.Deny) is bool(says)
    if says:
        assert (verdict.reason, verdict.sentence) == ("Revoked", says)


def test_names_of_other_signers_are_others():
    asked = index(Revocation(name="x", node="a"))
    foreign = kubelet.read(csr_cases.csr(signer="example.com/own"))
    assert isinstance(asked.judge_request(foreign, NOW), decision.NotMine)


def test_the_revocation_of_a_node():
    ended = Revocation(name="old", node="a", expires=NOW)
    assert index(ended).of_node("a", NOW) is None
    now = Revocation(name="x", user="system:node:a")
    assert index(ended, now).of_node("a", NOW) == now
    assert index(ended, now).of_node("b", NOW) is None


def test_a_revocation_is_read_with_all_its_targets():
    spec = {
        "node": "a",
        "user": "jane",
        "serialNumber": "0A:1B",
        "keyFingerprint": f"sha256:{KEY.upper()}",
        "reason": "stolen",
        "expires": "2026-06-01T14:00:00+02:00",
    }
    assert revocation.read({"metadata": {"name": "x"}, "spec": spec}) == Revocation(
        name="x", node="a", user="jane", serial="a1b", key_fingerprint=KEY, reason="stolen", expires=NOW
    )
    for odd in ("soon", "2030-01-01", "9999-12-31T23:59:59-14:00"):
        assert revocation.read({"metadata": {"name": "x"}, "spec": {"expires": odd}}).expires is None
