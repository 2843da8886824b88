# SPDX-License-Identifier: Apache-2.0
"""The annotations of a limited token, read and written."""

from __future__ import annotations

import datetime
import ipaddress
import json
from typing import Any

import pytest

from handfast import errors
from handfast.api import objects
from handfast.bootstrap import token_limits, tokens

NOW = datetime.datetime(2026, 11, 15, 12, 0, 0, tzinfo=datetime.UTC)
KEY = "sha256:" + "0a" * 32
ROW = {"time": "2026-11-15T12:00:00Z", "node": "worker-1", "key": KEY, "source": "192.0.2.7"}


def with_use(document: objects.Document, use: token_limits.Use) -> objects.Document:
    return token_limits.written(document, token_limits.record(document).with_use(use))


def secret(**noted: Any) -> dict[str, Any]:
    """A token's Secret with annotations, by their names without the prefix."""
    made = tokens.secret_document(tokens.Token("foobar", "circumnavigation"), usages=["authentication"])
    made["metadata"]["annotations"] = {f"handfast.dev/{key.replace('_', '-')}": value for key, value in noted.items()}
    return made


def use(number: int = 0, node: str = "worker-1") -> token_limits.Use:
    return token_limits.Use(time=NOW, node=node, key=f"sha256:{number:064x}", source="192.0.2.7")


def refusal(document: object) -> str:
    with pytest.raises(errors.Refused) as caught:
        token_limits.read(document)
    assert caught.value.reason == "BadTokenLimits"
    return caught.value.message


def test_limits_are_read_from_annotations() -> None:
    found = token_limits.read(
        secret(max_uses="3", allowed_nodes="worker-1, db-*.example.com,worker-1", allowed_cidrs="10.0.0.0/8, fd00::/8")
    )
    assert found == token_limits.Limits(
        max_uses=3,
        nodes=("worker-1", "db-*.example.com"),
        cidrs=(ipaddress.IPv4Network("10.0.0.0/8"), ipaddress.IPv6Network("fd00::/8")),
    )


@pytest.mark.parametrize(
    "document",
    [
        secret(),
        tokens.secret_document(tokens.Token("foobar", "circumnavigation")),
        {"metadata": {"annotations": None}},
        {"metadata": None},
        {},
        None,
    ],
)
def test_what_says_nothing_limits_nothing(document: object) -> None:
    assert token_limits.read(document) == token_limits.Limits()
    assert token_limits.uses(document) == []
    assert token_limits.count(document) == 0
    assert token_limits.uses_left(document) is None


LIMITS = (
    token_limits.Limits(),
    token_limits.Limits(max_uses=1),
    token_limits.Limits(max_uses=token_limits.MAX_USES, nodes=("worker-?", "a.b")),
    token_limits.Limits(cidrs=token_limits.parse_cidrs("192.0.2.7/32,::1/128")),
)


@pytest.mark.parametrize("limits", LIMITS)
def test_what_is_written_is_read_again(limits: token_limits.Limits) -> None:
    made = secret()
    made["metadata"]["annotations"] = token_limits.as_annotations(limits)
    assert token_limits.read(made) == limits


@pytest.mark.parametrize("text", ["", "0", "-1", "+1", "01", "1.0", "one", "257", "1" * 5000, " 1", "1\n", "١"])
def test_no_number_of_uses(text: str) -> None:
    message = refusal(secret(max_uses=text))
    assert message.startswith("handfast.dev/max-uses: ")
    assert message.endswith(" is no number of uses; allowed: 1 to 256")
    assert len(message) < 400


@pytest.mark.parametrize(
    "text",
    ["", ",", "worker-1,", "Worker-1", "worker_1", "-*", "*-", "worker-[12]", "a..b", "a b", "{a}", "x" * 254, "a\nb"],
)
def test_no_name_of_a_node(text: str) -> None:
    message = refusal(secret(allowed_nodes=text))
    assert message.startswith("handfast.dev/allowed-nodes: ")
    assert "is neither a node's name nor a glob for some" in message


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "is no network"),
        ("10.0.0.0/8,", "is no network"),
        ("10.0.0.0", "is no network"),
        ("10.0.0.0/255.0.0.0", "is no network"),
        ("10.0.0.0/33", "is no network"),
        ("10.0.0.0/-1", "is no network"),
        ("fe80::%eth0/64", "is no network"),
        ("host/8", "is no network"),
        ("private", "is no network"),
        ("10.0.0.1/8", "has host bits set"),
        ("fd00::1/8", "has host bits set"),
        ("::ffff:10.0.0.0/104", "is IPv4 written as IPv6"),
    ],
)
def test_no_network(text: str, wrong: str) -> None:
    message = refusal(secret(allowed_cidrs=text))
    assert message.startswith("handfast.dev/allowed-cidrs: ")
    assert f" {wrong}" in message
    assert "allowed: networks such as 10.0.0.0/8" in message


@pytest.mark.parametrize("key", ["max_uses", "allowed_nodes", "allowed_cidrs"])
def test_an_annotation_that_is_no_text(key: str) -> None:
    name = f"handfast.dev/{key.replace('_', '-')}"
    assert refusal(secret(**{key: 1})) == f"{name}: must be a text"


def test_an_option_is_named_as_the_user_gave_it() -> None:
    for parse in (token_limits.parse_max_uses, token_limits.parse_nodes, token_limits.parse_cidrs):
        with pytest.raises(errors.Refused, match=r'^--flag: "no_such" is n'):
            parse("no_such", "--flag")


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("worker-1", ["worker-1"], ["worker-11", "worker-", "xworker-1", "worker-1.example.com"]),
        ("worker-*", ["worker-1", "worker-1.example.com"], ["worker-", "worker", "aworker-1"]),
        ("*", ["a", "a.b"], ["", "A", "a_b", "a\n", "*", "?", "a/b", "-a", "x" * 254]),
        ("w?", ["w1", "wa"], ["w", "w11", "w.", "w-"]),
        ("*.example.com", ["a.example.com", "a.b.example.com"], ["example.com", "a.example.com.evil"]),
        ("a*b*c", ["abc", "axbxbc", "abcbc"], ["ab", "acb", "abcd"]),
        ("a**", ["a", "ab"], ["b"]),
        ("*a", ["a", "ba", "aba"], ["ab"]),
    ],
)
def test_a_pattern_matches_these_names_and_no_others(pattern: str, yes: list[str], no: list[str]) -> None:
    assert [name for name in yes if not token_limits.matches(pattern, name)] == []
    assert [name for name in no if token_limits.matches(pattern, name)] == []


def test_uses_are_read_and_unknown_fields_ignored() -> None:
    found = token_limits.uses(secret(uses=json.dumps([ROW, {**ROW, "node": "", "more": [1]}])))
    assert [(each.time, each.node, each.key, each.source) for each in found] == [
        (NOW, "worker-1", KEY, "192.0.2.7"),
        (NOW, "", KEY, "192.0.2.7"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "null",
        "[1]",
        "[{}]",
        "[" * 100_000,
        json.dumps([{**ROW, "time": "yesterday"}]),
        json.dumps([{**ROW, "time": "2026-11-15T12:00:00"}]),
        json.dumps([{**ROW, "time": "0001-01-01T00:00:00+23:00"}]),
        json.dumps([{**ROW, "key": "0a" * 32}]),
        json.dumps([{**ROW, "node": None}]),
        "\ud800",
    ],
    ids=lambda text: ascii(text[:40]),
)
def test_uses_that_cannot_be_read(text: str) -> None:
    with pytest.raises(errors.Refused, match=r"^handfast.dev/uses: must be a JSON list of uses") as caught:
        token_limits.uses(secret(uses=text))
    assert caught.value.reason == "BadTokenLimits"


@pytest.mark.parametrize(
    ("noted", "expected"),
    [
        ({"uses": json.dumps([ROW])}, 1),
        ({"uses": json.dumps([ROW]), "use_count": "7"}, 7),
        ({"uses": json.dumps([ROW]), "use_count": "0"}, 1),
        ({"use_count": "7"}, 7),
    ],
)
def test_the_count_is_never_less_than_the_rows(noted: dict[str, str], expected: int) -> None:
    assert token_limits.count(secret(**noted)) == expected


@pytest.mark.parametrize("text", ["", "-1", "many", "1e3", "9" * 5000])
def test_a_count_that_cannot_be_read(text: str) -> None:
    with pytest.raises(errors.Refused, match=r"^handfast.dev/use-count: .* is no number of uses$"):
        token_limits.count(secret(use_count=text))


@pytest.mark.parametrize(("limit", "used", "left"), [("3", "0", 3), ("3", "2", 1), ("3", "3", 0), ("3", "9", 0)])
def test_uses_left(limit: str, used: str, left: int) -> None:
    assert token_limits.uses_left(secret(max_uses=limit, use_count=used)) == left


def test_with_use() -> None:
    before = secret(max_uses="2")
    before["metadata"]["annotations"]["mine"] = "stays"
    after = with_use(before, use())
    assert token_limits.uses(after) == [use()]
    assert token_limits.count(after) == 1
    assert after["metadata"]["annotations"]["mine"] == "stays"
    assert (after["data"], after["type"], after["metadata"]["name"]) == (
        before["data"],
        before["type"],
        before["metadata"]["name"],
    )
    # What it was made from is as it was.
    assert token_limits.uses(before) == []


def test_with_use_of_a_secret_without_annotations() -> None:
    after = with_use(tokens.secret_document(tokens.Token("foobar", "circumnavigation")), use())
    assert token_limits.uses(after) == [use()]


@pytest.mark.parametrize(
    ("noted", "kept"), [({}, token_limits.KEPT), ({"max_uses": "1"}, token_limits.MAX_USES)], ids=["any", "limited"]
)
def test_the_first_and_the_newest_are_kept_and_all_are_counted(noted: dict[str, str], kept: int) -> None:
    made = secret(**noted)
    for number in range(kept + 3):
        made = with_use(made, use(number))
    first, newest = range(kept // 2), range(kept // 2 + 3, kept + 3)
    assert [each.key for each in token_limits.uses(made)] == [use(number).key for number in (*first, *newest)]
    assert token_limits.count(made) == kept + 3


def test_the_longest_list_fits_into_half_of_what_annotations_may_hold() -> None:
    made = secret(max_uses=str(token_limits.MAX_USES))
    longest = token_limits.Use(time=NOW, node="n" * 253, key=KEY, source="0000:" * 7 + "0000")
    rows = [{**ROW, "node": longest.node, "source": longest.source}] * token_limits.MAX_USES
    made["metadata"]["annotations"]["handfast.dev/uses"] = json.dumps(rows)
    noted = with_use(made, longest)["metadata"]["annotations"]
    assert sum(len(key) + len(value) for key, value in noted.items()) < 128 << 10


def test_the_warning_names_what_is_not_enforced() -> None:
    text = token_limits.warning()
    assert all(flag in text for flag in ("--max-uses", "--node", "--cidr"))
