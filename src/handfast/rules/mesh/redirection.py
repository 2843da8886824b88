# SPDX-License-Identifier: Apache-2.0
"""The redirect of a Pod's connections to its proxy, as input for iptables-restore. It runs nothing: `proxy.redirect` does.

1. Inbound TCP goes to the inbound port, outbound TCP to the outbound port, by nat REDIRECT: the kernel keeps the original destination for the proxy.
2. What the proxy itself opens is left alone, by its user, or it would be redirected for ever. The user is not root: then everything of root's would
   go past the proxy.
3. What stays on the loopback device is left alone, as Linkerd's proxy-init does it.
4. Ports that are skipped go past the proxy, and so do inbound connections from subnets that are skipped, each in its own IP version. A list that is
   only half understood is refused, and no text of it is a rule.
5. The rules lie in two chains of their own. One transaction fills them and jumps to them once: applied again, it changes nothing.
6. Undone is what was made, and nothing else: the jumps to those chains, then the chains.

Only TCP is redirected. Whoever runs as the proxy's user in the same Pod goes past it: the redirect makes traffic safe for an application, and does not
confine one.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from handfast import errors
from handfast.rules.mesh import port_annotations

INBOUND: Final = "HANDFAST_INBOUND"
OUTBOUND: Final = "HANDFAST_OUTBOUND"
_FROM: Final = {INBOUND: "PREROUTING", OUTBOUND: "OUTPUT"}
# What one match of ports can hold; a range counts as two (xt_multiport).
_MOST_PORTS: Final = 15
_JUMP: Final = re.compile(rf"-A (\S+ (?:.* )?-j (?:{INBOUND}|{OUTBOUND}))", re.ASCII)
_CHAIN: Final = re.compile(rf":({INBOUND}|{OUTBOUND}) ", re.ASCII)

Network = port_annotations.Network
Range = tuple[int, int]


class BadRedirection(errors.Refused):
    """A port, a user or a subnet of the redirect is none."""

    reason = "BadRedirection"


class Version(enum.IntEnum):
    """Of the Internet Protocol. Each has its own tables."""

    FOUR = 4
    SIX = 6


class Redirection(msgspec.Struct, frozen=True, kw_only=True):
    """The proxy's ports and user, and what goes past it."""

    inbound: int
    outbound: int
    user: int
    skip_inbound: tuple[Range, ...] = ()
    skip_outbound: tuple[Range, ...] = ()
    subnets: tuple[Network, ...] = ()

    def __post_init__(self) -> None:
        if self.inbound == self.outbound:
            raise BadRedirection(
                f"port {self.inbound} is for inbound and for outbound connections",
                hint="the proxy listens on a port of its own for each",
            )
        # 2. a user of its own
        if self.user < 1:
            raise BadRedirection(
                f"the proxy cannot run as user {self.user}: everything of that user's would go past it",
                hint="run the proxy as a user of its own, and name it with --proxy-uid",
            )


def ports(items: Iterable[str]) -> tuple[Range, ...]:
    """Ports and ranges, from lists with commas; what is none is refused (4)."""
    rows = []
    for item in _parts(items):
        ends = port_annotations.port_range(item)
        if ends is None:
            raise BadRedirection(
                f"{item!r} is no port", hint="allowed: ports and ranges of 1 to 65535, as in 25,8000-8010"
            )
        rows.append(ends)
    return tuple(rows)


def subnets(items: Iterable[str]) -> tuple[Network, ...]:
    """CIDR blocks, likewise; the bits of a host may be in them."""
    rows: list[Network] = []
    for item in _parts(items):
        network = port_annotations.subnet(item, strict=False)
        if network is None:
            raise BadRedirection(f"{item!r} is no subnet", hint="allowed: CIDR blocks, as in 192.0.2.0/24")
        rows.append(network)
    return tuple(rows)


def _parts(items: Iterable[str]) -> Iterator[str]:
    return (part.strip() for item in items for part in item.split(",") if part.strip())


def applied(redirection: Redirection, version: Version, saved: str) -> str:
    """The transaction that makes it, in place of what `saved` (of iptables-save) has of it."""
    # 5. once, however often it is applied
    return _transaction(
        [
            *(f":{chain} - [0:0]" for chain in _FROM),
            *_without_jumps(saved),
            *(f"-A {INBOUND} {rule}" for rule in _inbound(redirection, version)),
            *(f"-A {OUTBOUND} {rule}" for rule in _outbound(redirection)),
            *(f"-A {chain} -j {own}" for own, chain in _FROM.items()),
        ]
    )


def undone(saved: str) -> str:
    """The transaction that takes it away; empty where nothing of it is there (6)."""
    chains = [match[1] for line in saved.splitlines() if (match := _CHAIN.match(line))]
    # 6. jumps, rules, chains
    rows = [*_without_jumps(saved), *(f"-F {chain}" for chain in chains), *(f"-X {chain}" for chain in chains)]
    return _transaction(rows) if rows else ""


def _without_jumps(saved: str) -> Iterator[str]:
    return (f"-D {match[1]}" for line in saved.splitlines() if (match := _JUMP.fullmatch(line)))


def _transaction(rows: Sequence[str]) -> str:
    return "\n".join(("*nat", *rows, "COMMIT", ""))


def _inbound(redirection: Redirection, version: Version) -> Iterator[str]:
    # 4. what is skipped
    yield from _skipped(redirection.skip_inbound)
    for subnet in redirection.subnets:
        if subnet.version == version:
            yield f"-s {subnet} -j RETURN"
    # 1. all the rest of TCP
    yield _redirected(redirection.inbound)


def _outbound(redirection: Redirection) -> Iterator[str]:
    # 2. what the proxy opens
    yield f"-m owner --uid-owner {redirection.user} -j RETURN"
    # 3. what stays here
    yield "-o lo -j RETURN"
    # 4. what is skipped
    yield from _skipped(redirection.skip_outbound)
    # 1. all the rest of TCP
    yield _redirected(redirection.outbound)


def _redirected(port: int) -> str:
    return f"-p tcp -j REDIRECT --to-ports {port}"


def _skipped(ranges: Sequence[Range]) -> Iterator[str]:
    batch: list[str] = []
    room = _MOST_PORTS
    for first, last in ranges:
        size = 1 if first == last else 2
        if size > room:
            yield _past(batch)
            batch, room = [], _MOST_PORTS
        batch.append(str(first) if size == 1 else f"{first}:{last}")
        room -= size
    if batch:
        yield _past(batch)


def _past(batch: Sequence[str]) -> str:
    return f"-p tcp -m multiport --dports {','.join(batch)} -j RETURN"
