# SPDX-License-Identifier: Apache-2.0
"""Who made a token is what the server saw, and stays so."""

from __future__ import annotations

from typing import Any

from handfast.api import objects
from handfast.bootstrap import tokens
from handfast.rules.tokens import maker


def secret(annotations: dict[str, str] | None = None, kind: str = tokens.SECRET_TYPE) -> objects.Document:
    metadata: dict[str, Any] = {"name": "bootstrap-token-abcdef"}
    return {"metadata": metadata | ({} if annotations is None else {"annotations": annotations}), "type": kind}


def test_the_server_writes_who_made_it() -> None:
    document = secret({"other": "1"})
    maker.stamp(document, "alice")
    assert maker.of(document) == "alice"
    assert document["metadata"]["annotations"]["other"] == "1"


def test_what_the_request_says_counts_for_nothing() -> None:
    document = secret({maker.KEY: "bob"})
    maker.stamp(document, "alice")
    assert maker.of(document) == "alice"


def test_a_very_long_name_is_cut() -> None:
    document = secret()
    maker.stamp(document, "a" * 1000)
    assert len(maker.of(document)) == maker.LONGEST


def test_other_secrets_are_left_alone() -> None:
    document = secret({maker.KEY: "bob"}, "Opaque")
    maker.stamp(document, "alice")
    maker.keep(document, secret({maker.KEY: "carol"}, "Opaque"))
    assert maker.of(document) == "bob"


def test_it_stays_as_it_was() -> None:
    for document in (secret(), secret({maker.KEY: "bob"})):
        maker.keep(document, secret({maker.KEY: "alice"}))
        assert maker.of(document) == "alice"


def test_on_a_request_only_the_word_of_the_server_counts() -> None:
    forged = {maker.EXTRA: ["bob"], "other": ("1",)}
    assert maker.stamped(forged, "alice") == {maker.EXTRA: ["alice"], "other": ["1"]}
    assert maker.stamped(forged, "") == {"other": ["1"]}
    assert maker.recorded(maker.stamped({}, "alice")) == "alice"
    for odd in ([], ["alice", "bob"]):
        assert maker.recorded({maker.EXTRA: odd}) == maker.recorded({}) == ""


def test_nobody_adds_it_later() -> None:
    document = secret({maker.KEY: "bob"})
    maker.keep(document, secret())
    assert "annotations" not in document["metadata"]
