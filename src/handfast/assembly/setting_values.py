# SPDX-License-Identifier: Apache-2.0
"""Reads the values of settings: what a flag, a variable or a line of the file gives becomes what the program uses.

A value that is not allowed is a ValueError whose words follow the value in a sentence. `config` knows which settings there
are, and where a value came from.
"""

from __future__ import annotations

import datetime
import re
import urllib.parse
from collections.abc import Callable
from typing import Any, Final

from handfast import errors
from handfast.api import durations
from handfast.controllers import names as controller_names
from handfast.rules import networks
from handfast.rules.machines import join_window
from handfast.runtime import addresses as address_module
from handfast.store.etcd import place as places

LEVELS: Final = ("debug", "info", "warning", "error")
# As long as the issuance ledger is usually kept after its certificates have expired: what is forgotten is not on record.
LONGEST_WINDOW: Final = datetime.timedelta(days=90)
SHORTEST_LIFE: Final = datetime.timedelta(minutes=10)
LONGEST_LIFE: Final = datetime.timedelta(days=36_500)


def address(value: Any) -> address_module.Address:
    if not isinstance(value, str):
        raise ValueError("is not text")  # noqa: TRY004 - one kind of error for every value not allowed
    return address_module.parse(value)


def addresses(value: Any) -> tuple[address_module.Address, ...]:
    return tuple(address(item) for item in texts(value))


def advertised(value: Any) -> address_module.Address | None:
    """An address that others are told, if any: one that leads somewhere."""
    if value is None:
        return None
    parsed = address(value)
    if parsed.port == 0:
        raise ValueError("has the port 0, to which nobody can connect")
    if address_module.is_wildcard(parsed.host):
        raise ValueError(f"has the host {parsed.host}, to which nobody can connect")
    return parsed


def advertised_ip(value: Any) -> address_module.Address | None:
    """The same, for those who look no names up."""
    parsed = advertised(value)
    if parsed is not None and not address_module.ip_hosts([parsed.host]):
        raise ValueError(f"has the host {parsed.host}, which is no IP address")
    return parsed


def texts(value: Any) -> tuple[str, ...]:
    """A list from a file or from repeated flags, or comma-separated text from the environment."""
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise ValueError("is not a list of texts")
    return tuple(item.strip() for item in items if item.strip())


def store(value: Any) -> str:
    """A path, alone or as `sqlite:PATH`, relative to the data directory; or the URL of a place in an etcd."""
    if not isinstance(value, str) or not value:
        raise ValueError("is not text")
    scheme, colon, rest = value.partition(":")
    if not colon:
        return value
    if scheme == "etcd":
        return str(places.parse(value))
    if scheme != "sqlite":
        raise ValueError(f"has the scheme {scheme!r}; there are sqlite and etcd, as in {places.EXAMPLE}")
    place = rest.removeprefix("//")
    if not place:
        raise ValueError("has no path")
    return place


def controllers(value: Any) -> tuple[str, ...]:
    items = texts(value)
    try:
        controller_names.chosen(items)
    except errors.Refused as refused:
        raise ValueError(f"cannot be used: {refused.message}") from None
    return items


def boolean(value: Any) -> bool:
    """True or false, also as a word."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    raise ValueError("is neither true nor false")


def level(value: Any) -> str:
    if value not in LEVELS:
        raise ValueError("is not a level")
    return str(value)


def text_of_networks(value: Any) -> str:
    """Networks as text: they are read again by the server, which wants them parsed."""
    text = value if isinstance(value, str) else ",".join(texts(value))
    try:
        networks.Networks.parse(text)
    except errors.Refused as refused:
        raise ValueError(refused.message) from None
    return text


def balancers(value: Any) -> str:
    """Networks of those whose word on a client's address is taken: never everybody's."""
    text = text_of_networks(value)
    named = networks.Networks.parse(text)
    if named.unbounded or named.cover_a_family():
        raise ValueError("would let everybody choose their own address")
    return text


def trusted_networks(value: Any) -> str:
    """Networks whose machines need no other proof: never everybody's."""
    text = text_of_networks(value)
    named = networks.Networks.parse(text)
    if named.unbounded or named.cover_a_family():
        raise ValueError("would hand out the bootstrap credential to everybody")
    return text


def issuer(value: Any) -> str:
    parts = urllib.parse.urlsplit(value) if isinstance(value, str) else None
    if parts is None or parts.scheme != "https" or not parts.netloc or parts.query or parts.fragment:
        raise ValueError("is not an https URL without query and fragment")
    return str(value)


def path(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("is not a path")
    if not value:
        raise ValueError("is empty")
    return value


def file(value: Any) -> str | None:
    """A file that need not be named."""
    return None if value is None else path(value)


def word(value: Any) -> str | None:
    """A text that need not be given."""
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise ValueError("is not text")
    return value


def lifetime(value: Any) -> datetime.timedelta:
    """How long certificates live at most."""
    found = durations.parse(str(value))
    if not SHORTEST_LIFE <= found <= LONGEST_LIFE:
        raise ValueError("is too short" if found < SHORTEST_LIFE else "is too long")
    return found


def join_within(value: Any) -> datetime.timedelta:
    """How long after its Machine a machine may ask for its certificate."""
    return join_window.parse(str(value))


def whole(least: int, most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not re.fullmatch(r"[0-9]{1,12}", str(value), re.ASCII):
            raise ValueError("is not a whole number")
        number = int(value)
        if number and not least <= number <= most:
            raise ValueError(f"is not between {least} and {most}")
        return number

    return read


def window(value: Any) -> datetime.timedelta:
    """A time in hours or days, as in 720h; 0 is none."""
    found = re.fullmatch(r"([0-9]{1,4})([hd])|0", str(value), re.ASCII)
    if found is None:
        raise ValueError("is not a number of hours or days")
    length = datetime.timedelta(hours=int(found[1] or 0) * (24 if found[2] == "d" else 1))
    if length > LONGEST_WINDOW:
        raise ValueError("is longer than 90 days")
    return length
