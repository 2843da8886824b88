# SPDX-License-Identifier: Apache-2.0
"""Tokens and lifetimes on a command line, and what people should know before they pass a token on.

It creates nothing. A token need not be among the arguments, where every user of the machine can read it: `-` is standard
input, and each flag for a token has a twin for a file.
"""

from __future__ import annotations

import datetime
import pathlib
import sys
import urllib.parse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from handfast.cli import invocation, output

if TYPE_CHECKING:
    from handfast.bootstrap import tokens

_F = TypeVar("_F", bound=Callable[..., Any])

STDIN: Final = "-"
DEFAULT_TTL: Final = "24h"
_MAX_BYTES: Final = 4096


def first_token_options(function: _F) -> _F:
    """Adds --token, --token-file and --token-ttl of commands that make the first token of a cluster."""
    for option in (
        click.option(
            "--token-ttl",
            metavar="DURATION",
            default=DEFAULT_TTL,
            show_default=True,
            help="How long the first token lives, as in 90m, 24h or 7d; 0 is for ever.",
        ),
        click.option(
            "--token-file", type=click.Path(), default=None, help="A file with the first token; - is standard input."
        ),
        click.option(
            "--token",
            default=None,
            help='The first token; - reads it from standard input, "" makes none.  [default: a random one]',
        ),
    ):
        function = option(function)
    return function


def first_token(token: str | None, token_file: str | None) -> str | None:
    """The first token that was asked for, well formed; None for a random one, and empty for none."""
    if token is not None and token_file is not None:
        raise output.Usage("--token and --token-file do not go together")
    if token_file is not None:
        return parse(read_file(token_file, "--token-file"), "--token-file").text
    if token is None or not token:
        return token
    return parse(read_file(STDIN, "--token") if token == STDIN else token, "--token").text


def read_file(path: str, flag: str) -> str:
    """The token in a file, in what `<(command)` writes, or on standard input; blanks around it do not count."""
    from handfast import errors
    from handfast.runtime import files

    where = "standard input" if path == STDIN else path
    try:
        data = _typed() if path == STDIN else files.read_given(pathlib.Path(path), limit=_MAX_BYTES)
    except errors.HandfastError as error:
        if error.reason == "FileTooLarge":
            raise output.Usage(f"{flag}: {where} is too long for a token") from None
        # A file that cannot be read is no wrong usage, as with every other flag for a file.
        raise errors.Refused(
            f"{flag}: {error.message}", reason=error.reason, hint=f"name another file with {flag}"
        ) from None
    text = data.decode("ascii", "replace").strip()
    if not text:
        raise output.Usage(
            f"{flag}: {where} is empty", hint="it has to hold one token, as `handfast token generate` prints"
        )
    return text


def _typed() -> bytes:
    from handfast import errors

    data = sys.stdin.buffer.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise errors.Refused("standard input is too long", reason="FileTooLarge")
    return data


def parse(text: str, flag: str) -> tokens.Token:
    """A token, or a wrong usage that does not repeat it."""
    from handfast import errors
    from handfast.bootstrap import tokens

    try:
        return tokens.parse(text)
    except errors.Refused as refused:
        raise output.Usage(f"{flag}: {refused.message}", reason=refused.reason, hint=refused.hint) from None


def parse_ttl(text: str, flag: str) -> datetime.timedelta | None:
    """A lifetime; None: for ever."""
    from handfast import errors
    from handfast.bootstrap import token_lifetimes

    try:
        return token_lifetimes.parse(text, flag)
    except errors.Refused as refused:
        raise output.Usage(refused.message, hint=refused.hint) from None


def holder_warning(token_id: str, expires: str, *, limited: bool = False) -> str:
    """What somebody with the token can do, until when, and how to end that."""
    which = "within its limits, as nodes" if limited else "as nodes of any name"
    end = f"until it expires at {expires}" if expires else "without end: it never expires"
    return (
        f"whoever holds the token {token_id}.… can join machines {which}, {end}; a node can read the Secrets of the Pods "
        f"bound to it; once your machines have joined, delete the token: {invocation.program()} token delete {token_id}"
    )


def only_here(servers: Sequence[str]) -> str:
    """The note that no other machine can join by these servers, and what to do; empty where others can."""
    from handfast.runtime import addresses

    urls = [urllib.parse.urlsplit(server) for server in servers]
    if not urls or not all(addresses.is_loopback(each.hostname or "") for each in urls):
        return ""
    port = urls[0].port
    return (
        f"no other machine reaches {urls[0].hostname}; to let others join, start `{invocation.program()} up` with "
        f"--listen 0.0.0.0:{port}, and with --advertise HOST:{port} where they reach this machine as HOST"
    )


def instant_after(now: datetime.datetime, ttl: datetime.timedelta | None) -> datetime.datetime | None:
    """When a token made now expires."""
    return None if ttl is None else now + ttl
