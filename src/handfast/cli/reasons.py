# SPDX-License-Identifier: Apache-2.0
"""The catalogue of reasons: what each means, and what to do. Read from data/reasons.toml, and by nobody who does not ask.

That every reason of the program has an entry, and no entry is left over, is `tests/test_reasons.py`'s to show. It prints nothing.
"""

from __future__ import annotations

import difflib
import functools
import importlib.resources
import re
import tomllib
from dataclasses import asdict, dataclass
from typing import Final

_FILE: Final = "data/reasons.toml"
_MOST: Final = 5
# Letters in common, by which a word is taken for a misspelt reason.
_NEAR: Final = 0.7
_LEAST: Final = 3


@dataclass(frozen=True, slots=True)
class Entry:
    """A reason; `group` is where it is met, `page` a page of the documentation."""

    reason: str
    group: str
    means: str
    do: str
    page: str

    @property
    def brief(self) -> str:
        """The first sentence of what it means."""
        return re.split(r"(?<=\.) ", self.means, maxsplit=1)[0]

    def document(self) -> dict[str, str]:
        """As JSON and YAML have it."""
        return asdict(self)


def _text() -> str:
    return importlib.resources.files("handfast").joinpath(_FILE).read_text()


@functools.cache
def catalogue() -> dict[str, Entry]:
    """Every entry by its reason, in the order of the alphabet."""
    entries = {
        reason: Entry(reason, group["title"], row["means"], row["do"], row.get("page", group["page"]))
        for group in tomllib.loads(_text()).values()
        for reason, row in group["reasons"].items()
    }
    return dict(sorted(entries.items()))


def is_known(reason: str) -> bool:
    """Whether there is an entry. The file is looked through, not read: an error is printed at once."""
    return f".reasons.{reason}]\n" in _text()


def find(word: str) -> Entry | None:
    """The entry of a reason, in whichever case it is written."""
    return next((entry for reason, entry in catalogue().items() if reason.casefold() == word.casefold()), None)


def near(word: str) -> list[str]:
    """Reasons that may be meant, the likeliest first: those that are spelt alike, then those that have the word in them."""
    spelt = {reason.casefold(): reason for reason in catalogue()}
    alike = difflib.get_close_matches(word.casefold(), spelt, n=_MOST, cutoff=_NEAR)
    within = [each for each in spelt if len(word) >= _LEAST and word.casefold() in each]
    return [spelt[each] for each in dict.fromkeys([*alike, *within])][:_MOST]
