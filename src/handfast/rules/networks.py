# SPDX-License-Identifier: Apache-2.0
"""Is this address within the networks an operator has named? A verdict on one address; it does not decide what for.

A list of networks is one of these texts (1 to 4):

1. `private`: RFC 1918 (10/8, 172.16/12, 192.168/16), unique local IPv6 (fc00::/7) and loopback (127/8, ::1). Not
   link-local addresses (169.254/16, fe80::/10): whoever is plugged into the wire has one without being given it. Not
   100.64/10 either: a carrier's customers share it.
2. `any`: no address is turned away, nor is one that cannot be read.
3. `none`: every address is.
4. networks in CIDR form, separated by commas, `private` among them if wanted. Each has a prefix length and no host
   bits, so that a slip of the hand is an error and not another network.

5. An IPv4 address that comes as IPv6 (`::ffff:10.0.0.1`) is judged as the IPv4 address it is; a network is not written
   so. IPv4 addresses are not within `::/0`. What is no address is in no network.
6. The verdicts on 4096 addresses are remembered; with one more, all are judged anew.

| who | holding | tries | stopped by | shown in tests/unit/rules/test_networks.py |
|---|---|---|---|---|
| a stranger | a public address | pass for private in the IPv4-mapped form | 5 | test_mapped_addresses |
| a stranger | many addresses | fill the memory with verdicts | 6 | test_memory_is_bounded |
| a neighbour on the wire | a link-local address | pass for private | 1 | test_private_is_rfc_1918_unique_local_and_loopback_only |
"""

from __future__ import annotations

import functools
import ipaddress
from dataclasses import dataclass, field

from handfast import errors
from handfast.rules import decision

PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "fc00::/7", "::1/128")
_ALLOWED = "private, any, none, or networks such as 10.0.0.0/8,fd00::/8"
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_REMEMBERED = 4096

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Networks:
    """`text` is what the operator wrote."""

    text: str
    members: tuple[Network, ...]
    unbounded: bool = False
    _verdicts: dict[str, decision.Approve | decision.Deny] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @classmethod
    def parse(cls, text: str) -> Networks:
        """The networks `text` names; raises Refused with the part that is wrong."""
        plain = text.strip()
        # 2. any address, or 3. none
        if plain in {"any", "none"}:
            return cls(plain, (), unbounded=plain == "any")
        members: list[Network] = []
        # 4. networks, each as it should be written
        for part in plain.split(","):
            members.extend(_networks(part.strip(), text))
        return cls(plain, tuple(members))

    def holds(self, address: str) -> decision.Approve | decision.Deny:
        """Whether `address` is within one of them."""
        verdict = self._verdicts.get(address)
        if verdict is None:
            verdict = self._judge(address)
            # 6. a bounded memory
            if len(self._verdicts) >= _REMEMBERED:
                self._verdicts.clear()
            self._verdicts[address] = verdict
        return verdict

    def cover_a_family(self) -> bool:
        """Whether every IPv4 address is within them, or every IPv6 one, by one network or by several together."""
        four = [network for network in self.members if isinstance(network, ipaddress.IPv4Network)]
        six = [network for network in self.members if isinstance(network, ipaddress.IPv6Network)]
        together: list[Network] = [*ipaddress.collapse_addresses(four), *ipaddress.collapse_addresses(six)]
        return any(network.prefixlen == 0 for network in together)

    def _judge(self, address: str) -> decision.Approve | decision.Deny:
        if self.unbounded:
            return decision.Approve("AddressAllowed", "any address is allowed", "networks")
        parsed = _address(address)
        if parsed is None:
            return decision.Deny("AddressUnknown", f"{address[:64]!r} is no IP address", "networks")
        for network in self.members:
            if parsed in network:
                return _within(network)
        return decision.Deny("AddressNotAllowed", f"the address {parsed} is not in {self.text}", "networks")


@functools.lru_cache(maxsize=256)
def _within(network: Network) -> decision.Approve:
    """One verdict for all addresses of a network: writing one for each would take longer than finding the network."""
    return decision.Approve("AddressAllowed", f"the address is in {network}", "networks")


def neighbourhood(address: str) -> str:
    """What one machine can take addresses from, for counting: an IPv4 address itself, the /64 of an IPv6 one.

    `address` is as the kernel writes it, so that what has no colon needs no reading.
    """
    return _wider(address) if ":" in address else address


@functools.lru_cache(maxsize=_REMEMBERED)
def _wider(address: str) -> str:
    parsed = _address(address)
    if not isinstance(parsed, ipaddress.IPv6Address) or parsed.is_loopback:
        return address if parsed is None else str(parsed)
    return str(ipaddress.IPv6Network((int(parsed) >> 64 << 64, 64)))


def _address(text: str) -> Address | None:
    try:
        parsed = ipaddress.ip_address(text)
    except ValueError:
        return None
    # 5. IPv4 that comes as IPv6 is IPv4
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return parsed if mapped is None else mapped


def _networks(part: str, text: str) -> tuple[Network, ...]:
    # 1. private networks
    if part == "private":
        return tuple(ipaddress.ip_network(known) for known in PRIVATE)
    if not part:
        raise _refused(f"{text!r} names an empty network" if text.strip() else "no network is named", _ALLOWED)
    if part in {"any", "none"}:
        raise _refused(f"{part!r} stands alone, not in a list as in {text!r}", _ALLOWED)
    address, slash, length = part.partition("/")
    try:
        start = ipaddress.ip_address(address)
    except ValueError:
        raise _refused(f"{part!r} is no network", _ALLOWED) from None
    if "%" in address:
        raise _refused(f"{part!r} names an interface", "networks without one, such as fe80::/10")
    most = start.max_prefixlen
    if not slash:
        raise _refused(f"{part!r} has no prefix length", f"{part}/{most} for this one address")
    if not (length.isascii() and length.isdecimal() and int(length) <= most):
        raise _refused(f"the prefix length of {part!r} is {length!r}", f"0 to {most} for IPv{start.version}")
    return (_network(start, int(length), part),)


def _network(start: Address, length: int, part: str) -> Network:
    family = ipaddress.IPv4Network if start.version == 4 else ipaddress.IPv6Network
    network = family((int(start), length), strict=False)
    # 5. not IPv4 written as IPv6
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(_MAPPED):
        plain = ipaddress.IPv4Network((int(network.network_address) & 0xFFFFFFFF, length - 96), strict=False)
        raise _refused(f"{part!r} is IPv4 written as IPv6", str(plain))
    if network.network_address != start:
        raise _refused(f"{part!r} has host bits set", f"{network}, or {start}/{start.max_prefixlen} for one address")
    return network


def _refused(what: str, allowed: str) -> errors.Refused:
    return errors.Refused(f"{what}; allowed: {allowed}", reason="InvalidNetwork")
