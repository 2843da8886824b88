# SPDX-License-Identifier: Apache-2.0
"""Whether a command has printed what a page shows.

1. Distances between words do not count.
2. Instants and ages differ from run to run: one stands for any other of the same form.
3. A page invents other words: those of `EXAMPLES`. The first time one is met it stands for any word of its form, and from
   then on for that very word; what the page has people type is typed with it.
4. `…` alone in a line stands for any lines, at the end of a line for the rest of it, in a word for the rest of the word.

It runs nothing, and does not look at exit codes.
"""

from __future__ import annotations

import re

# What pages invent -> the form of what is there in truth. A row that no page needs fails in `scenarios.test_pages`.
EXAMPLES = {
    # Ids of tokens, in joining.md.
    "5mm6n4": "[a-z0-9]{6}",
    # The pin of the CA.
    "00f9…": "[0-9a-f]{64}",
    # The fingerprint of the CA, the id of a key and a number of certificates, in ca.md.
    "1b9e038a5216ff04": "[0-9a-f]{16}",
    "ITieZA_8q00vga6I": r"[\w-]{16}",
    "42": r"\d+",
    # A process, in node.md.
    "2285": r"\d+",
}
_TIMES = (r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", r"20\d\d(?:-\d\d){5}", r"(?<!\w)(?:\d+[smhd])+(?!\w)")
_EXAMPLE = rf"(?<!\w)(?:{'|'.join(map(re.escape, EXAMPLES))})(?!\w)"
_PIECE = re.compile(rf"(?P<time>{'|'.join(_TIMES)})|(?P<example>{_EXAMPLE})|(?P<rest>…$)|(?P<word>…)")


class Match:
    """What the invented words of the pages that were followed stand for."""

    def __init__(self) -> None:
        self.stand_for: dict[str, str] = {}

    def typed(self, command: str) -> str:
        """The command with the words that there are."""
        return re.sub(_EXAMPLE, lambda found: self.stand_for.get(found[0], found[0]), command)

    def holds(self, shown: str, printed: str) -> bool:
        """Whether it is the same; then invented words that are met for the first time are known."""
        met: list[str] = []
        pattern = "\n".join(self._line(line, met) for line in _words(shown))
        found = re.fullmatch(pattern, "\n".join(_words(printed)))
        if found is not None:
            self.stand_for |= {example: found[f"n{number}"] for number, example in enumerate(met)}
        return found is not None

    def _line(self, line: str, met: list[str]) -> str:
        if line == "…":
            return r"(?s:.*)"
        ends = [0, *(found.end() for found in _PIECE.finditer(line))]
        pieces = [
            re.escape(line[end : found.start()]) + self._piece(found, met)
            for end, found in zip(ends, _PIECE.finditer(line), strict=False)
        ]
        return "".join(pieces) + re.escape(line[ends[-1] :])

    def _piece(self, found: re.Match[str], met: list[str]) -> str:
        if found["time"]:
            return next(form for form in _TIMES if re.fullmatch(form, found[0]))
        if found["example"]:
            return self._example(found[0], met)
        return ".*" if found["rest"] else r"\S*"

    def _example(self, example: str, met: list[str]) -> str:
        if example in self.stand_for:
            return re.escape(self.stand_for[example])
        if example in met:
            return f"(?P=n{met.index(example)})"
        met.append(example)
        return f"(?P<n{len(met) - 1}>{EXAMPLES[example]})"


def _words(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.strip().splitlines()]
