# SPDX-License-Identifier: Apache-2.0
"""How many values each key sealed, while they are sealed anew one after the other."""

from __future__ import annotations

import pytest

from handfast.apiserver.state import envelope, seal_keys
from handfast.pki import seal

PREFIX = "core/secrets/"


def envelopes(*names: str) -> envelope.Envelopes:
    sealer = seal.Sealer({name: name.encode().ljust(32, b"-") for name in names}, names[0])
    return envelope.Envelopes(sealer, (PREFIX,))


@pytest.mark.parametrize("first", ["old", "new"])
def test_each_value_counts_for_the_key_that_sealed_it_last(first: str) -> None:
    by = {name: envelopes(name) for name in ("old", "new")}
    keys = seal_keys.SealKeys(envelopes("new", "old"))
    assert keys.counts(0) == {}
    second = "new" if first == "old" else "old"
    for name in ("a", "b", "c"):
        keys.note(PREFIX + name, by[first].wrap(PREFIX + name, "v1", b"{}"))
    assert keys.counts(3) == {first: 3}
    keys.note(PREFIX + "a", by[second].wrap(PREFIX + "a", "v1", b"{}"))
    assert keys.counts(3) == {first: 2, second: 1}
    # Gone, and sealed again with the first one.
    keys.note(PREFIX + "b", None)
    assert keys.counts(2) == {first: 1, second: 1}
    keys.note(PREFIX + "a", None)
    assert keys.counts(1) == {first: 1}
    keys.note(PREFIX + "c", by[second].wrap(PREFIX + "c", "v1", b"{}"))
    assert keys.counts(1) == {second: 1}
    keys.note(PREFIX + "c", by[first].wrap(PREFIX + "c", "v1", b"{}"))
    assert keys.counts(1) == {first: 1}


def test_what_is_not_to_be_sealed_is_not_looked_at() -> None:
    keys = seal_keys.SealKeys(envelopes("one"))
    keys.note("core/configmaps/a", b"no header")
    assert keys.counts(0) == {}
