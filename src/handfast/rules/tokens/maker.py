# SPDX-License-Identifier: Apache-2.0
"""Who made a bootstrap token: what the API server writes on the token's Secret when it is created. It grants and refuses nothing.

1. The annotation is written by the server, whatever the request says: it is the user that authentication found.
2. It stays as it was first written, whoever writes the Secret later. One that was made before there was this annotation has none, and gets none.
3. Only Secrets of the type of bootstrap tokens have it. The type of a Secret never changes.
4. A name longer than `LONGEST` is cut: whoever issues identities chooses them.

| who | holding | tries | stopped by | shown in tests/unit/rules/tokens/test_maker.py |
|---|---|---|---|---|
| who may create Secrets | that right | have another blamed for a token | 1 | test_what_the_request_says_counts_for_nothing |
| who may change Secrets | that right | … | 2 | test_it_stays_as_it_was |
| … | a Secret that has none | … | 2 | test_nobody_adds_it_later |
"""

from __future__ import annotations

from typing import Final

from handfast.api import jsonpath, objects
from handfast.bootstrap import tokens

KEY: Final = "handfast.dev/made-by"
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


def _set(document: objects.Document, user: str) -> None:
    metadata = document["metadata"]
    annotations = {**jsonpath.mapping(metadata, "annotations"), KEY: user}
    if not user:
        del annotations[KEY]
    if annotations:
        metadata["annotations"] = annotations
    else:
        metadata.pop("annotations", None)
