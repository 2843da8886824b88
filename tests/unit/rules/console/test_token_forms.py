# SPDX-License-Identifier: Apache-2.0
"""Every field of the form for a new token, and what is said at it."""

from __future__ import annotations

import datetime

import pytest

from handfast.bootstrap import first_objects, token_limits, token_views, tokens
from handfast.rules.console import token_forms

NOW = datetime.datetime(2026, 6, 1, 12, 0, tzinfo=datetime.UTC)
TOKEN = tokens.Token("abcdef", "0123456789abcdef")


def form(**changes: str) -> dict[str, str]:
    return {**token_forms.EMPTY, **{name.replace("_", "-"): text for name, text in changes.items()}}


def test_the_form_as_it_stands_is_for_one_machine_and_a_day() -> None:
    view = token_views.view(token_forms.read(form()).document(TOKEN, NOW))
    assert view.expires == NOW + datetime.timedelta(days=1)
    assert (view.usages, view.groups) == (("authentication", "signing"), (first_objects.NODE_GROUP,))
    assert view.limits == token_limits.Limits(max_uses=1)


def test_every_field_is_in_the_secret() -> None:
    sent = form(
        ttl="90m",
        max_uses="",
        nodes="rack-*\nedge-1",
        cidrs="10.0.0.0/8, 192.0.2.0/24",
        groups="system:bootstrappers:racks system:bootstrappers:b",
        description="for racks",
    )
    document = token_forms.read(sent).document(TOKEN, NOW)
    view = token_views.view(document)
    assert view.expires == NOW + datetime.timedelta(minutes=90)
    assert view.groups == ("system:bootstrappers:racks", "system:bootstrappers:b")
    assert view.description == "for racks"
    assert view.limits == token_limits.Limits(
        nodes=("rack-*", "edge-1"), cidrs=token_limits.parse_cidrs("10.0.0.0/8,192.0.2.0/24")
    )


def test_one_without_limits_has_no_annotations() -> None:
    assert "annotations" not in token_forms.read(form(max_uses="", ttl="0")).document(TOKEN, NOW)["metadata"]


def test_one_for_signing_alone_has_no_groups() -> None:
    assert token_forms.read(form(authentication="")).groups == ()
    assert token_forms.read(form(authentication="", groups="")).groups == ()
    assert token_forms.read(form(groups=",")).groups == (first_objects.NODE_GROUP,)


@pytest.mark.parametrize(
    ("sent", "field", "part"),
    [
        (form(ttl="soon"), "ttl", '"soon" is no duration; give numbers'),
        (form(ttl=""), "ttl", "say how long it lives"),
        (form(ttl="1" * 300), "ttl", "is no duration"),
        (form(max_uses="0"), "max-uses", '"0" is no number of uses; allowed: 1 to 256'),
        (form(nodes="Rack"), "nodes", "neither a node's name nor a glob"),
        (form(cidrs="10.0.0.1/8"), "cidrs", "10.0.0.1/8"),
        (form(groups="masters"), "groups", "system:bootstrappers:"),
        (form(groups="system:bootstrappers:x", authentication=""), "groups", "nobody logs in"),
        (form(signing="", authentication=""), "authentication", "choose at least one"),
        (form(description="x" * 257), "description", "at most 256"),
        (form(description="back\u202ewards"), "description", "one line"),
        (form(nodes="a " * 4096), "nodes", "at most 4096 characters"),
    ],
)
def test_an_error_stands_at_its_field(sent: dict[str, str], field: str, part: str) -> None:
    with pytest.raises(token_forms.Refusal) as caught:
        token_forms.read(sent)
    assert set(caught.value.fields) == {field}
    assert part in caught.value.fields[field]
    assert caught.value.message == "1 field is not as it should be; no token was made"


def test_all_errors_are_told_at_once() -> None:
    with pytest.raises(token_forms.Refusal, match="3 fields are not as they should be") as caught:
        token_forms.read(form(ttl="x", max_uses="x", nodes="X"))
    assert set(caught.value.fields) == {"ttl", "max-uses", "nodes"}


@pytest.mark.parametrize(
    ("sent", "parts"),
    [
        (form(authentication=""), ["nobody logs in with it"]),
        (form(), ["within its limits", "until 2026-06-02 12:00:00 UTC"]),
        (form(max_uses="", ttl="0"), ["of any name, from anywhere", "without end"]),
    ],
)
def test_whoever_makes_one_is_told_what_it_is_worth(sent: dict[str, str], parts: list[str]) -> None:
    warning = token_forms.read(sent).warning(NOW)
    assert all(part in warning for part in parts)
