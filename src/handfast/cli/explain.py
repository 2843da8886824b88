# SPDX-License-Identifier: Apache-2.0
"""`handfast explain REASON…`: what a reason means, and what to do. It asks no server and knows of no object: `csr explain`,
`token explain`, `machine explain` and `mesh explain` do.

1. Upper and lower case are the same, since reasons are typed from memory.
2. What is known is printed, also beside what is not; then what is not is an error, with what may be meant.
"""

from __future__ import annotations

import click

from handfast import errors
from handfast.cli import output, reasons, tables


class UnknownReason(errors.Refused):
    """Nobody here gives this reason."""

    reason = "UnknownReason"


def _offered(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """What a shell completes."""
    return [reason for reason in reasons.catalogue() if reason.casefold().startswith(incomplete.casefold())]


@click.command(name="explain", short_help="Say what a reason means, and what to do.")
@click.argument("words", metavar="REASON...", nargs=-1, shell_complete=_offered)
@click.option("--list", "all_of_them", is_flag=True, help="List every reason with what it means in short.")
@output.format_option
def command(words: tuple[str, ...], *, all_of_them: bool, form: str) -> None:
    """Say what a reason means, and what to do.

    A reason is the word in the last line of an error, in a condition, an Event, a log or a metric. Case does not matter. No server is
    asked. About one request, token, machine or call, ask `handfast csr explain`, `handfast token explain`, `handfast machine explain` or
    `handfast mesh explain`.
    """
    if all_of_them and words:
        raise output.Usage("--list lists every reason", hint="name reasons, or give --list")
    if not all_of_them and not words:
        raise output.Usage("no reason was named", hint="`handfast explain --list` shows all of them")
    found = {word: reasons.find(word) for word in words}
    # 1. one entry for all spellings of a reason
    named = list(dict.fromkeys(entry for entry in found.values() if entry is not None))
    entries = list(reasons.catalogue().values()) if all_of_them else named
    # 2. what is known, then what is not
    if entries:
        output.result(_written(entries, form, brief=all_of_them))
    unknown = [word for word, entry in found.items() if entry is None]
    if unknown:
        raise _unknown(unknown)


def _written(entries: list[reasons.Entry], form: str, *, brief: bool) -> str:
    if form != "text":
        return output.document({"reasons": [entry.document() for entry in entries]}, form)
    if brief:
        return tables.table(("REASON", "MEANS"), [(entry.reason, entry.brief) for entry in entries])
    return "\n\n".join(map(_sheet, entries))


def _sheet(entry: reasons.Entry) -> str:
    rows = (("about", entry.group), ("means", entry.means), ("do", entry.do), ("page", entry.page))
    return tables.table(("reason", entry.reason), rows)


def _unknown(words: list[str]) -> UnknownReason:
    close = list(dict.fromkeys(reason for word in words for reason in reasons.near(word)))
    shown = ", ".join(f'"{word[:100]}"' for word in words)
    listed = "`handfast explain --list` shows all of them"
    hint = f"did you mean {' or '.join(close)}? {listed}" if close else listed
    return UnknownReason(f"no reason is called {shown}", hint=hint)
