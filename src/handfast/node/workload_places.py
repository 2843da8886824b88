# SPDX-License-Identifier: Apache-2.0
"""Where a workload and its proxy are on this machine: the Pod's address, its ports, and free ports for the proxy. Nothing listens there by this.

1. The Pod's address is the one that was named; else the one from which this machine reaches the API server. Where that is loopback, the Pod gets an
   address of its own in 127.0.0.0/8, which no other workload of this machine has.
2. The Pod's ports are free at its address, and so are the application's on 127.0.0.1. Who listens there already would be served in the workload's
   name [AddressInUse].
3. The proxy's own ports are the usual ones, or the next that are free.
4. What is chosen is claimed for the life of the process. Envoy would share a port with another Envoy without a word.

| who | holding | tries | stopped by | shown in tests/unit/node/test_workload_places.py |
|---|---|---|---|---|
| another program of this machine | the application's port, before it starts | be called in the workload's name | 2 | test_a_port_that_is_taken_is_refused |
| another workload of this machine | the same port | get half of the connections | 4 | test_two_workloads_do_not_share_an_address_or_a_port |
"""

from __future__ import annotations

import ipaddress
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from handfast import errors
from handfast.rules.mesh import workload_pod
from handfast.runtime import addresses, claims, routes

OUTBOUND: Final = 4140
ADMIN: Final = 4191
LOCAL: Final = "127.0.0.1"
_ATTEMPTS: Final = 64
_NEIGHBOURS: Final = 40


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """Where a workload is."""

    ip: str
    host_ip: str
    outbound: addresses.Address
    admin: addresses.Address


def find(uid: str, server: str, named_ip: str, ports: Sequence[workload_pod.Port], held: claims.Claims) -> Places:
    """The places of one workload; `server` is the API server's URL."""
    host_ip = routes.source(urllib.parse.urlsplit(server).hostname or "") or LOCAL
    ip = _address(uid, named_ip or host_ip, held, own=not named_ip)
    for port in ports:
        # 2. the Pod's, then the application's
        _require_free(addresses.Address(ip, port.number), held, "--inbound, or another address with --pod-ip")
        _require_free(addresses.Address(LOCAL, port.application), held, "--inbound PORT:APPLICATION_PORT")
    # 3. the usual ones, or the next
    outbound, admin = (_free(number, held) for number in (OUTBOUND, ADMIN))
    return Places(ip=ip, host_ip=host_ip, outbound=outbound, admin=admin)


def _address(uid: str, ip: str, held: claims.Claims, *, own: bool) -> str:
    if not own or not ipaddress.ip_address(ip).is_loopback:
        return ip
    for attempt in range(_ATTEMPTS):
        # 1. of its own, and no other workload's
        candidate = workload_pod.loopback(uid, attempt)
        if held.take(f"pod {candidate}"):
            addresses.listen(addresses.Address(candidate, 0), "--pod-ip").close()
            return candidate
    raise errors.Unavailable(
        "no address of 127.0.0.0/8 is free for this Pod", reason="AddressNotAvailable", hint="name one with --pod-ip"
    )


def _require_free(address: addresses.Address, held: claims.Claims, flag: str) -> None:
    # 4. for as long as this process lives
    if not held.take(f"port {address}"):
        raise _taken(address, "this workload, or another one of this machine, has it", flag)
    try:
        addresses.listen(address, flag).close()
    except errors.Refused as refused:
        if refused.reason != "AddressInUse":
            raise errors.Refused(
                refused.message,
                reason=refused.reason,
                hint="name an address of this machine with --pod-ip, and ports from 1024 on",
            ) from refused
        raise _taken(address, "another process listens there", flag) from refused


def _taken(address: addresses.Address, why: str, flag: str) -> errors.Refused:
    return errors.Refused(f"{address} is taken: {why}", reason="AddressInUse", hint=f"choose another port with {flag}")


def _free(number: int, held: claims.Claims) -> addresses.Address:
    for port in _candidates(number):
        address = addresses.Address(LOCAL, port)
        if held.take(f"port {address}"):
            try:
                addresses.listen(address, "").close()
            except errors.Refused:
                held.drop(f"port {address}")
            else:
                return address
    raise errors.Unavailable("no port of 127.0.0.1 is free for the proxy", reason="AddressNotAvailable")


def _candidates(number: int) -> Iterator[int]:
    yield from range(number, number + _NEIGHBOURS)
    for _ in range(_NEIGHBOURS):
        with addresses.listen(addresses.Address(LOCAL, 0), "") as chosen:
            port = int(chosen.getsockname()[1])
        yield port
