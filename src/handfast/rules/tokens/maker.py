# SPDX-License-Identifier: Apache-2.0
"""Who made a bootstrap token: what the API server writes on the token's Secret when it is created, and on requests that come with the token.
It grants and refuses nothing.

1. The annotation is written by the server, whatever the request says: it is the user that authentication found.
2. It stays as it was first written, whoever writes the Secret later. One that was made before there was this annotation has none, and gets none.
3. Only Secrets of the type of bootstrap tokens have it. The type of a Secret never changes.
4. A name longer than `LONGEST` is cut: whoever issues identities chooses them.
5. On a request for a certificate it is `spec.extra[EXTRA]`, so that the ledger has it when the token is long gone. The server alone fills that in, and
   nobody changes the spec of a request afterwards. Whatever else put a value there is dropped, such as somebody who acts as another.
6. On requests it is written once every server of the store can read it in the ledger: see `apiserver.state.envelope`.

| who | holding | tries | stopped by | shown in tests/unit/rules/tokens/test_maker.py |
|---|---|---|---|---|
| who may create Secrets | that right | have another blamed for a token | 1 | test_what_the_request_says_counts_for_nothing |
| who may change Secrets | that right | … | 2 | test_it_stays_as_it_was |
| … | a Secret that has none | … | 2 | test_nobody_adds_it_later |
| who may impersonate, with extra | that right | have another blamed for a certificate | 5 | test_on_a_request_only_the_word_of_the_server_counts |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from handfast.api import jsonpath, objects
from handfast.bootstrap import tokens

KEY: Final = "handfast.dev/made-by"
EXTRA: Final = "handfast.dev/token-made-by"
LONGEST: Final = 256


def stamp(document: objects.Document, user: str) -> None:
    """Write on a new Secret who made it."""
    # 3. only of tokens
    if document.get("type") == tokens.SECRET_TYPE:
        # 1. whatever the request says; 4. and not without end
        _set(document, user if len(user) <= LONGEST else f"{user[: LONGEST - 1]}…")


def keep(document: objects.Document, old: objects.Document) -> None:
    """Leave on a Secret that is changed what stood there."""
    # 2. as it was, or not at all
    if old.get("type") == tokens.SECRET_TYPE:
        _set(document, of(old))


def of(document: objects.Document) -> str:
    """Who made a token; empty: the server that it was made at did not say."""
    return jsonpath.text(document, "metadata", "annotations", KEY)


def stamped(extra: Mapping[str, Sequence[str]], made_by: str) -> dict[str, list[str]]:
    """The extra of a new request that came with a token; `made_by` is empty where it did not, or where that is not known."""
    # 5. nobody else's word
    filled = {key: list(values) for key, values in extra.items() if key != EXTRA}
    return {**filled, EXTRA: [made_by]} if made_by else filled


def recorded(extra: Mapping[str, Sequence[str]]) -> str:
    """Who made the token that a request came with; empty where that is not on it."""
    values = extra.get(EXTRA, ())
    return values[0] if len(values) == 1 else ""


def _set(document: objects.Document, user: str) -> None:
    metadata = document["metadata"]
    annotations = {**jsonpath.mapping(metadata, "annotations"), KEY: user}
    if not user:
        del annotations[KEY]
    if annotations:
        metadata["annotations"] = annotations
    else:
        metadata.pop("annotations", None)
