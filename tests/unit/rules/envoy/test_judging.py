# SPDX-License-Identifier: Apache-2.0
"""What is judged for each request, as maps; and nothing but names and digests gets into them."""

import re

import pytest

from handfast import errors
from handfast.rules.envoy import judging
from tests.unit.rules.envoy.matching import Call, enforced, shadow

DIGEST = "0a" * 32
ALLOWED = ("ALLOW", "allowed")
Permits, Row = judging.Permits, judging.PortJudgement
PLAINTEXT = Call(tls=False, verdict=None)


def proved(*rows, path=""):
    return judging.matcher(rows, proved=True, path=path)


def plaintext(*rows, path=""):
    return judging.matcher(rows, proved=False, path=path)


def test_without_anything_everybody_may():
    for document, call in ((proved(Row()), Call()), (proved(Row()), Call(san="a.b")), (plaintext(Row()), PLAINTEXT)):
        assert enforced(document, call) == ALLOWED
        assert "shadow_matcher" not in document["rbac"]
    assert Row().tcp
    assert not Row(permits=Permits(identified=True)).tcp


@pytest.mark.parametrize("verdict", [judging.EXPIRED, judging.REVOKED, judging.DENIED])
def test_what_the_script_refuses_is_refused_before_every_permission(verdict):
    for permits in (judging.EVERYBODY, Permits(names=frozenset({"a.b"}))):
        row = Row(permits=permits, audited=Permits())
        assert enforced(proved(row), Call(san="a.b", verdict=verdict)) == ("DENY", verdict)


@pytest.mark.parametrize("verdict", [None, "", "Good", "anything"])
def test_without_a_verdict_nobody_may(verdict):
    assert enforced(proved(Row()), Call(verdict=verdict)) == ("DENY", judging.NOT_JUDGED)


@pytest.mark.parametrize(
    ("permits", "allowed", "refused", "reason"),
    [
        (Permits(), [], [None, "a.b"], judging.NOT_ALLOWED),
        (Permits(identified=True), ["a.b", "x"], [None], judging.IDENTITY_REQUIRED),
        (Permits(identified=True, suffixes=(".b",)), ["a.b", "x"], [None], judging.IDENTITY_REQUIRED),
        (Permits(names=frozenset({"a.b", "c.d"})), ["a.b", "c.d"], [None, "a.b,c.d", "a"], judging.NOT_ALLOWED),
        (Permits(suffixes=(".ns1.sa",)), ["a.ns1.sa"], [None, "a-ns1.sa", "a.ns1.sa.x"], judging.NOT_ALLOWED),
        (
            Permits(names=frozenset({"a.b"}), suffixes=(".d", ".e")),
            ["a.b", "c.d", "c.e"],
            [None, "b.b"],
            judging.NOT_ALLOWED,
        ),
    ],
)
def test_who_is_none_of_them_is_refused(permits, allowed, refused, reason):
    document = proved(Row(permits=permits))
    assert [enforced(document, Call(san=san)) for san in allowed] == [ALLOWED] * len(allowed)
    assert [enforced(document, Call(san=san)) for san in refused] == [("DENY", reason)] * len(refused)
    # In plaintext nobody has a name, and no input is compared: Envoy fails where there is none.
    assert enforced(plaintext(Row(permits=permits)), PLAINTEXT) == ("DENY", reason)


def test_the_reason_is_the_rows_own():
    row = Row(permits=Permits(suffixes=(".b",)), reason=judging.NOT_KNOWN)
    for document, call in ((proved(row), Call(san="a")), (plaintext(row), PLAINTEXT)):
        assert enforced(document, call) == ("DENY", judging.NOT_KNOWN)


def test_what_is_in_audit_is_a_shadow():
    rows = (Row(audited=Permits()), Row(port=81))
    for document, call in ((proved(*rows), Call(san="a.b")), (plaintext(*rows), PLAINTEXT)):
        assert enforced(document, call) == ALLOWED
        assert shadow(document, call) == ("DENY", judging.NOT_ALLOWED)
        other = Call(san=call.san, verdict=call.verdict, port=81, tls=call.tls)
        assert shadow(document, other) == ALLOWED


def test_what_is_refused_anyway_is_not_counted_in_audit():
    row = Row(permits=Permits(identified=True), audited=Permits(names=frozenset({"a.b"}), anonymous=True))
    document = proved(row)
    assert [shadow(document, Call(san=san))[0] for san in (None, "a.b", "c.d")] == ["ALLOW", "ALLOW", "DENY"]
    assert shadow(document, Call(san="c.d", verdict=judging.REVOKED)) == ALLOWED
    assert shadow(document, Call(san="c.d", verdict=None)) == ALLOWED
    assert shadow(plaintext(row), PLAINTEXT) == ALLOWED


def test_each_port_has_its_own_rules_and_the_others_have_those_of_port_0():
    document = proved(Row(permits=Permits()), Row(port=80), Row(port=81, permits=Permits(identified=True)))
    assert enforced(document, Call(port=80)) == ALLOWED
    assert enforced(document, Call(port=81)) == ("DENY", judging.IDENTITY_REQUIRED)
    assert enforced(document, Call(port=82, san="a.b")) == ("DENY", judging.NOT_ALLOWED)
    assert enforced(plaintext(Row(port=80), Row(port=81)), Call(port=82)) == ("DENY", judging.NOT_ALLOWED)


def test_the_path_of_a_probe_is_open_on_its_port_alone():
    closed = Permits()
    rows = (Row(permits=closed), Row(port=80, permits=closed, audited=closed, open_paths=("/healthz",)))
    for document in (proved(*rows, path="/healthz"), plaintext(*rows, path="/healthz")):
        assert enforced(document, Call(verdict=judging.DENIED)) == ALLOWED
        assert shadow(document, Call()) == ALLOWED
        assert enforced(document, Call(port=81))[0] == "DENY"
    assert enforced(proved(*rows, path="/other"), Call())[0] == "DENY"


def test_refusals_are_counted_by_their_reasons_and_each_has_a_word():
    assert len(set(judging.REASONS)) == 8
    assert proved(Row())["rbac"]["track_per_rule_stats"]


def test_denied_names_and_digests_are_keys_of_the_scripts_maps():
    deny = judging.Deny(names=frozenset({"c.d", "a.b"}), digests=frozenset({DIGEST}))
    text = judging.script(deny)["source_code"]["inline_string"]
    assert text.startswith(
        f'local digests = {{["{DIGEST}"]=true,}}\nlocal names = {{["a.b"]=true,["c.d"]=true,}}\nlocal function'
    )
    # What it can say is what the matcher knows.
    said = set(re.findall(r'return "([a-z-]+)"', text))
    assert said == {"good", judging.EXPIRED, judging.REVOKED, judging.DENIED}
    assert f'"{judging.VERDICT}"' in text


@pytest.mark.parametrize(
    "deny",
    [
        judging.Deny(digests=frozenset({'"]=true} os.exit() --'})),
        judging.Deny(digests=frozenset({DIGEST + "\n"})),
        judging.Deny(digests=frozenset({DIGEST.upper()})),
        judging.Deny(names=frozenset({"a.b,c.d"})),
        judging.Deny(names=frozenset({'a"'})),
        judging.Deny(names=frozenset({""})),
    ],
)
def test_nothing_but_names_and_digests_gets_into_the_script(deny):
    with pytest.raises(errors.Misuse):
        judging.script(deny)


@pytest.mark.parametrize(
    "permits", [Permits(names=frozenset({"*.b"})), Permits(suffixes=("",)), Permits(suffixes=(".*",))]
)
def test_nothing_but_names_gets_into_a_map(permits):
    with pytest.raises(errors.Misuse):
        proved(Row(permits=permits))


def test_the_filters_take_what_comes_from_outside_and_choose_no_other_route():
    mutation, lua, rbac = judging.filters()
    (row,) = mutation["typed_config"]["mutations"]["request_mutations"]
    assert row["remove_on_match"]["key_matcher"]["safe_regex"]["regex"] == "(?i)l5d[_-].*"
    assert lua["typed_config"]["clear_route_cache"] is False
    assert rbac["name"] == judging.RBAC
