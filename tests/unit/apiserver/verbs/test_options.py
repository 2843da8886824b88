# SPDX-License-Identifier: Apache-2.0
"""Query parameters of lists and watches: what they mean and what is refused."""

from __future__ import annotations

import base64
import urllib.parse
from typing import Any

import pytest

from handfast.api import kinds, status
from handfast.apiserver import request
from handfast.apiserver.state import envelope, items
from handfast.apiserver.verbs import options

PODS = kinds.row("pods")
CONFIG_MAPS = kinds.row("configmaps")


def parsed(kind: kinds.Kind = PODS, *, watch: bool = False, name: str = "", **query: str) -> options.ListOptions:
    text = urllib.parse.urlencode({key.rstrip("_"): value for key, value in query.items()})
    path = f"/api/v1/namespaces/a/{kind.plural}" + (f"/{name}" if name else "")
    return options.parse(kind, request.parse("GET", f"{path}?{text}"), watch=watch)


def refused(*, watch: bool = False, kind: kinds.Kind = PODS, **query: str) -> status.StatusError:
    with pytest.raises(status.StatusError) as caught:
        parsed(kind, watch=watch, **query)
    return caught.value


def item(name: str, labels: str = "{}", node: str = "") -> items.Item:
    text = f'{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","labels":{labels}}},"spec":{{"nodeName":"{node}"}}}}'
    assert envelope.metadata_at(text.encode())
    return items.Item("a", name, 3, text.encode())


class TestDefaults:
    def test_nothing_given(self) -> None:
        found = parsed()
        assert found.selection.everything
        assert (found.limit, found.continues, found.version, found.match) == (0, None, None, "")
        assert (found.bookmarks, found.initial_events, found.timeout) == (False, None, 0)

    def test_unknown_parameters_are_ignored(self) -> None:
        assert parsed(pretty="true", timeout="32s", nonsense="%%%", limit_="") == parsed()

    def test_all_given(self) -> None:
        found = parsed(
            watch=True,
            resourceVersion="12",
            resourceVersionMatch="NotOlderThan",
            sendInitialEvents="true",
            allowWatchBookmarks="true",
            timeoutSeconds="60",
            limit="5",
            labelSelector="a=b",
        )
        assert not found.selection.everything
        assert (found.limit, found.version, found.match) == (5, 12, "NotOlderThan")
        assert (found.initial_events, found.bookmarks, found.timeout) == (True, True, 60)


class TestNumbers:
    @pytest.mark.parametrize(("text", "value"), [("0", 0), ("1", 1), ("500", 500), ("-5", 0), ("9" * 18, 10**18 - 1)])
    def test_a_limit_is_a_number_and_never_negative(self, text: str, value: int) -> None:
        assert parsed(limit=text).limit == value

    @pytest.mark.parametrize("text", ["x", "-", "1.5", "1e3", " 1", "+1", "٣", "9" * 19, "0x10", "1_000", "--1"])
    def test_what_is_no_integer_is_refused(self, text: str) -> None:
        for name in ("limit", "timeoutSeconds"):
            query: dict[str, Any] = {name: text}
            error = refused(**query)
            assert error.code == 400
            assert error.message == f'{name}: invalid value "{text}": an integer is wanted'

    @pytest.mark.parametrize("text", ["x", "-1", "1.5", "٣", "1" * 20, " 1", "0x1"])
    def test_resource_version(self, text: str) -> None:
        error = refused(resourceVersion=text)
        assert error.code == 400
        assert error.message == f'Invalid value: "{text}": resourceVersion must be an unsigned integer'

    def test_resource_version_zero_is_not_none(self) -> None:
        assert parsed(resourceVersion="0").version == 0
        assert parsed(resourceVersion="").version is None


class TestContinue:
    def test_round_trip(self) -> None:
        token = options.Continue(12, "default/näme")
        assert options.Continue.parse(token.text()) == token
        assert parsed(continue_=token.text()).continues == token

    @pytest.mark.parametrize(
        "text",
        [
            "x",
            "é",
            "====",
            "bm90IGpzb24",
            base64.urlsafe_b64encode(b"[]").decode(),
            base64.urlsafe_b64encode(b'{"rv":"1","start":"a"}').decode(),
            base64.urlsafe_b64encode(b'{"rv":1}').decode(),
            base64.urlsafe_b64encode(b'{"rv":1,"start":"\xff"}').decode(),
            base64.urlsafe_b64encode(b'{"rv":1,"start":"a","v":"v2"}').decode(),
            options.Continue(0, "a").text(),
            options.Continue(-2, "a").text(),
            options.Continue(1, "a\0b").text(),
            base64.urlsafe_b64encode(b"[" * 20_000).decode(),
        ],
    )
    def test_a_continue_key_of_somebody_else_is_refused(self, text: str) -> None:
        error = refused(continue_=text)
        assert error.code == 400
        assert error.message.startswith("continue key is not valid")

    def test_not_beside_a_version(self) -> None:
        error = refused(continue_=options.Continue(3, "a").text(), resourceVersion="3")
        assert (error.code, error.message) == (
            400,
            "specifying resource version is not allowed when using continue",
        )


class TestMatch:
    @pytest.mark.parametrize(
        ("watch", "query", "field", "message"),
        [
            (False, {"resourceVersionMatch": "Exact"}, "resourceVersionMatch", "unless resourceVersion is provided"),
            (
                False,
                {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
                "resourceVersionMatch",
                '"Exact" is forbidden for resourceVersion "0"',
            ),
            (
                False,
                {"resourceVersionMatch": "Exact", "continue_": "x"},
                "resourceVersionMatch",
                "forbidden when continue is provided",
            ),
            (
                False,
                {"resourceVersionMatch": "Nonsense", "resourceVersion": "1"},
                "resourceVersionMatch",
                'Unsupported value: "Nonsense": supported values: "Exact", "NotOlderThan"',
            ),
            (False, {"sendInitialEvents": "true"}, "sendInitialEvents", "forbidden for list"),
            (
                True,
                {"resourceVersionMatch": "NotOlderThan"},
                "resourceVersionMatch",
                "forbidden for watch unless sendInitialEvents is provided",
            ),
            (True, {"sendInitialEvents": "true"}, "resourceVersionMatch", "requires setting resourceVersionMatch to"),
            (
                True,
                {"sendInitialEvents": "false", "resourceVersionMatch": "Exact"},
                "resourceVersionMatch",
                "requires setting resourceVersionMatch to",
            ),
        ],
    )
    def test_combinations_that_kubernetes_forbids_are_refused(
        self, watch: bool, query: dict[str, Any], field: str, message: str
    ) -> None:
        error = refused(watch=watch, **query)
        assert (error.code, error.reason) == (422, "Invalid")
        assert message in [cause.message for cause in error.causes if cause.field == field][-1]

    def test_a_match_beside_its_version_is_accepted(self) -> None:
        assert parsed(resourceVersion="3", resourceVersionMatch="Exact").match == "Exact"
        assert parsed(resourceVersion="0", resourceVersionMatch="NotOlderThan").version == 0


class TestSelection:
    def test_a_label_selector_chooses_by_labels(self) -> None:
        chosen = parsed(labelSelector="a=b,c notin (d)").selection
        assert not chosen.everything
        assert chosen.matches(item("p", '{"a":"b"}'))
        assert not chosen.matches(item("p", '{"a":"b","c":"d"}'))

    def test_a_field_selector_chooses_by_fields(self) -> None:
        chosen = parsed(fieldSelector="spec.nodeName=n").selection
        assert chosen.matches(item("p", node="n"))
        assert not chosen.matches(item("p", node="m"))

    def test_both_selectors_have_to_match(self) -> None:
        chosen = parsed(fieldSelector="metadata.name=p", labelSelector="a=b").selection
        assert chosen.matches(item("p", '{"a":"b"}'))
        assert not chosen.matches(item("p"))
        assert not chosen.matches(item("q", '{"a":"b"}'))

    @pytest.mark.parametrize("query", [{}, {"fieldSelector": "metadata.namespace=a"}])
    def test_a_name_in_the_path(self, query: dict[str, Any]) -> None:
        chosen = parsed(name="p", **query).selection
        assert chosen.matches(item("p"))
        assert not chosen.matches(item("q"))

    @pytest.mark.parametrize(
        ("kind", "text", "message"),
        [
            (PODS, "spec.nonsense=1", "field label not supported: spec.nonsense"),
            (
                CONFIG_MAPS,
                "type=x",
                '"type" is not a known field selector: only "metadata.name", "metadata.namespace"',
            ),
        ],
    )
    def test_unknown_fields(self, kind: kinds.Kind, text: str, message: str) -> None:
        error = refused(kind=kind, fieldSelector=text)
        assert (error.code, error.message) == (400, message)

    @pytest.mark.parametrize(
        "text", ["a in (", "a=b=c=", ",", "a b", "!", "a in b", "-a=b", "a=" + "x" * 64, "(", "=="]
    )
    def test_bad_labels(self, text: str) -> None:
        assert refused(labelSelector=text).code == 400
