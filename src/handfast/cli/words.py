# SPDX-License-Identifier: Apache-2.0
"""What holds for every word of every command line, before any command reads it. What a word means, the command knows.

1. A word, and a variable that this program reads, is text in UTF-8. Anything else could be neither sent nor shown.
2. No value and no argument is empty. An empty path would mean the current directory, an empty name every object. Mostly
   the cause is a script with a variable that is not set. For the few flags in `EMPTY`, an empty value means something.
   An empty variable of the environment is one that is not set, as everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from handfast.cli import output

# Flag -> what an empty value means.
EMPTY: Final = {
    "--token": "up and init make no token, which join refuses in its own words",
    "--description": "none",
    "--message": "none",
    "--reason": "none",
    "--api-audiences": "the issuer alone",
    "--node-ip": "the address by which the API server is reached, as a kubelet takes it",
    "--feature-gates": "none, as a kubelet takes it",
}
_VARIABLES: Final = ("HANDFAST_", "KUBECONFIG")


def require_good(arguments: Sequence[str], environ: Mapping[str, str]) -> None:
    """Refuse a command line, or an environment, that no command can take."""
    # 1. text
    for word in arguments:
        if _odd(word):
            raise output.Usage(f"an argument is no text: {_shown(word)}", hint="arguments are text in UTF-8")
    for name, value in environ.items():
        if name.startswith(_VARIABLES) and _odd(value):
            raise output.Usage(f"${name} is no text: {_shown(value)}", hint="it has to be text in UTF-8")
    # 2. not empty
    for index, word in enumerate(arguments):
        before = arguments[index - 1] if index else ""
        if not word and before not in EMPTY:
            raise _empty(f"{before}: the value is empty" if before.startswith("-") else f"word {index + 1} is empty")
        flag, equals, value = word.partition("=")
        if flag.startswith("-") and equals and not value and flag not in EMPTY:
            raise _empty(f"{flag}: the value is empty")


def _odd(text: str) -> bool:
    """Whether the octets behind it are no UTF-8: Python keeps each of them as a surrogate."""
    return not text.isascii() and any("\ud800" <= each <= "\udfff" for each in text)


def _shown(text: str) -> str:
    return repr(text[:120].encode("utf-8", "surrogateescape"))[1:]


def _empty(problem: str) -> output.Usage:
    return output.Usage(problem, hint="give a value, or leave it out; in a script, perhaps a variable is not set")
