# SPDX-License-Identifier: Apache-2.0
"""Which keys sealed what is in the store, and how many values each: an old key may go when nothing is sealed with it any more.

It opens nothing: the id of the key is in the header of a value. Nearly always one key has sealed everything. So only what another one
sealed is remembered by name.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping

from handfast.apiserver.state import envelope


class SealKeys:
    """Kept by whoever applies the store's writes."""

    def __init__(self, envelopes: envelope.Envelopes) -> None:
        self._envelopes = envelopes
        self._prefixes = tuple(envelopes.sealed)
        self._usual = ""
        self._others: dict[str, str] = {}

    def note(self, key: str, value: bytes | None) -> None:
        """A key has this value now; None: it is gone."""
        if not key.startswith(self._prefixes):
            return
        key_id = None if value is None else self._envelopes.key_id(key, value)
        self._usual = self._usual or key_id or ""
        if key_id is None or key_id == self._usual:
            self._others.pop(key, None)
        else:
            self._others[key] = key_id

    def counts(self, total: int) -> Mapping[str, int]:
        """How many values each key sealed, of so many altogether; a key without any is left out."""
        counts = collections.Counter(self._others.values())
        counts[self._usual] = total - len(self._others)
        return {key_id: count for key_id, count in sorted(counts.items()) if count}
