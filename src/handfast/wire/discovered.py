# SPDX-License-Identifier: Apache-2.0
"""What the destination service says, judged row by row: endpoints and profiles as plain values. It asks nothing (`discovering` does).

1. An endpoint is an IP address and a port of 1 to 65535 [BadEndpoint]. Others are left out, never guessed.
2. The name that it proves is one that a certificate can have, and is asked for by itself [BadEndpointIdentity]. An endpoint with an identity that
   cannot be verified here is left out: it must not be spoken to in plaintext.
3. So many endpoints, and so many names, and no more [TooManyEndpoints]: the rest is left out.
4. What is left out is counted, and a few rows of each stream are logged.

| who | holding | tries | stopped by | shown in tests/unit/wire/test_discovering.py |
|---|---|---|---|---|
| a service that is confused | its certificate | an endpoint whose name is no name, so that it is called in plaintext | 2 | test_nonsense_is_left_out_and_the_rest_is_known |
| … | … | endpoints without end | 3 | test_endpoints_without_end_are_bounded |
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import ipaddress
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import structlog

from handfast import errors
from handfast.rules.mesh import names

# Each costs 58 µs at every change of one of them.
MOST_ENDPOINTS: Final = 2_000
MOST_NAMES: Final = 64
_LOGGED: Final = 5
_LAST_PORT: Final = 65_535
_log = structlog.get_logger("handfast.discovering")


class BadEndpoint(errors.Refused):
    """An address that is none (1)."""

    reason = "BadEndpoint"


class BadIdentity(errors.Refused):
    """An identity that nobody can prove here (2)."""

    reason = "BadEndpointIdentity"


class TooMany(errors.Refused):
    """More than may be known of one destination (3)."""

    reason = "TooManyEndpoints"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address, the name that it proves (empty: none), and whether what it speaks is no HTTP."""

    host: str
    port: int
    identity: str = ""
    opaque: bool = False


class Known(msgspec.Struct, frozen=True):
    """The endpoints of a name; there may be none."""

    endpoints: tuple[Endpoint, ...]


class Profile(msgspec.Struct, frozen=True):
    """What an address is: one of a Service, by its name, or an endpoint."""

    name: str = ""
    endpoint: Endpoint | None = None


class Missing(msgspec.Struct, frozen=True):
    """There is no such Service."""


class Foreign(msgspec.Struct, frozen=True):
    """The name is none of the mesh's."""


class Away(msgspec.Struct, frozen=True):
    """The service does not answer: there is nothing new."""

    why: str


Answer = Known | Profile | Missing | Foreign | Away


class Sieve:
    """What is left out of one stream: counted, and a few rows of it in words."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.left_out = 0

    def leave_out(self, refused: errors.Refused) -> None:
        # 4. counted, and a few in words
        self.left_out += 1
        if self.left_out <= _LOGGED:
            _log.warning("an endpoint is left out", path=self._path, reason=refused.reason, error=refused.message)


class Endpoints:
    """The endpoints that one stream has told so far."""

    def __init__(self, sieve: Sieve) -> None:
        self._sieve = sieve
        self._rows: dict[tuple[str, int], Endpoint] = {}
        self._names: collections.Counter[str] = collections.Counter()

    def take(self, update: Any) -> Answer:
        """What is known after one more Update."""
        match update.WhichOneof("update"):
            case "add":
                for row in update.add.addrs:
                    self._add(row)
            case "remove":
                for row in update.remove.addrs:
                    self._drop(row)
            case _:
                self._rows.clear()
                self._names.clear()
                if not update.no_endpoints.exists:
                    return Missing()
        return Known(tuple(self._rows.values()))

    def _add(self, row: Any) -> None:
        # What it was before is no longer true, whatever it is now.
        self._drop(row.addr)
        try:
            endpoint = judged(row)
            self._require_room(endpoint)
        except errors.Refused as refused:
            self._sieve.leave_out(refused)
            return
        self._rows[endpoint.host, endpoint.port] = endpoint
        self._names[endpoint.identity] += 1

    def _drop(self, address: Any) -> None:
        with contextlib.suppress(BadEndpoint):
            gone = self._rows.pop(_address(address), None)
            if gone is not None:
                self._names[gone.identity] -= 1
                self._names += collections.Counter()

    def _require_room(self, endpoint: Endpoint) -> None:
        # 3. so many, and no more
        if len(self._rows) >= MOST_ENDPOINTS:
            raise TooMany(f"more than {MOST_ENDPOINTS} endpoints")
        if endpoint.identity not in self._names and len(self._names) >= MOST_NAMES:
            raise TooMany(f"endpoints of more than {MOST_NAMES} names")


class Profiles:
    """The last profile of one stream."""

    def __init__(self, sieve: Sieve) -> None:
        self._sieve = sieve

    def take(self, profile: Any) -> Answer:
        """What one more profile says."""
        if not profile.HasField("endpoint"):
            return Profile(profile.fully_qualified_name)
        try:
            row = judged(profile.endpoint)
        except errors.Refused as refused:
            self._sieve.leave_out(refused)
            return Known(())
        return Profile("", dataclasses.replace(row, opaque=row.opaque or profile.opaque_protocol))


State = Endpoints | Profiles


def judged(row: Any) -> Endpoint:
    """One endpoint as the service tells it, if it can be used (1, 2)."""
    host, port = _address(row.addr)
    return Endpoint(host, port, _identity(row), row.protocol_hint.WhichOneof("protocol") == "opaque")


def _address(message: Any) -> tuple[str, int]:
    # 1. an IP address, and a port
    kind = message.ip.WhichOneof("ip")
    if kind is None:
        raise BadEndpoint("an endpoint without an IP address")
    if not 1 <= message.port <= _LAST_PORT:
        raise BadEndpoint(f"an endpoint with the port {message.port}")
    if kind == "ipv4":
        return str(ipaddress.IPv4Address(message.ip.ipv4)), message.port
    return str(ipaddress.IPv6Address((message.ip.ipv6.first << 64) | message.ip.ipv6.last)), message.port


def _identity(row: Any) -> str:
    if not row.HasField("tls_identity"):
        return ""
    # 2. verified here, or not at all
    stated = row.tls_identity
    if stated.WhichOneof("strategy") != "dns_like_identity":
        raise BadIdentity("an identity that is no DNS name")
    name = str(stated.dns_like_identity.name).lower()
    if (wrong := names.not_dns(name)) is not None:
        raise BadIdentity(f"{name[: names.MAX_LENGTH]!r} is no name: {wrong}")
    if stated.server_name.name.lower() not in {"", name}:
        raise BadIdentity(f"{name} would be asked for by another name")
    return name
