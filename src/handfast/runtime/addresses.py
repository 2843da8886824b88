# SPDX-License-Identifier: Apache-2.0
"""Addresses to listen on: HOST:PORT as people write it, and the socket bound to it.

A port that is taken is noticed here, before anything starts. A port that nobody named gives way to the next free one. Where a process was
handed the socket of an address, that one is used: nobody else could take the port meanwhile. It does not accept connections.
"""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from handfast import errors
from handfast.runtime import routes

_BACKLOG = 1024
# How many ports are tried, one after the other, before the kernel is left to choose.
_NEIGHBOURS = 16
_IN_USE = "AddressInUse"
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?\Z")
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - recognised, not bound


@dataclass(frozen=True, slots=True)
class Address:
    """A host, by name or IP, and a port; and the socket that listens there already, where this process was handed one."""

    host: str
    port: int
    descriptor: int | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def local(self) -> Address:
        """How a client on this machine reaches it: a wildcard is reached through loopback."""
        return Address(_WILDCARDS.get(self.host, self.host), self.port)

    def url(self, scheme: str) -> str:
        return f"{scheme}://{self.local()}"


def parse(text: str) -> Address:
    """`127.0.0.1:6443`, `[::1]:6443` or `name:6443`; a ValueError says what else it is."""
    host, colon, digits = text.rpartition(":")
    if not colon or (":" in host and not host.startswith("[")):
        raise ValueError("has no port, or an IPv6 address without brackets")
    if not re.fullmatch(r"[0-9]{1,5}", digits) or int(digits) > 65535:
        raise ValueError(f"has the port {digits!r}, which is not a number from 0 to 65535")
    if not host:
        raise ValueError("has no host (0.0.0.0 means every IPv4 address of this machine)")
    return Address(_parse_host(host), int(digits))


def _parse_host(host: str) -> str:
    if host.startswith("["):
        if not host.endswith("]"):
            raise ValueError("has an opening bracket without a closing one")
        try:
            return str(ipaddress.IPv6Address(host[1:-1]))
        except ValueError:
            raise ValueError(f"has {host[1:-1]!r} in brackets, which is not an IPv6 address") from None
    if re.fullmatch(r"[0-9.]+", host):
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise ValueError(f"has the host {host!r}, which is not an IPv4 address") from None
    if len(host) > 253 or not _NAME.match(host):
        raise ValueError(f"has the host {host!r}, which is neither a host name nor an IP address")
    return host.lower()


def listen(address: Address, flag: str) -> socket.socket:
    """A listening socket on `address`, or the one that was handed over; `flag` is the option that the hints name.

    It listens at once, so that a client that comes while the server (re)starts waits instead of being refused.
    """
    if address.descriptor is not None:
        return socket.socket(fileno=address.descriptor)
    last: OSError | None = None
    for family, kind, protocol, _name, where in _resolve(address, flag):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(where)
            sock.listen(_BACKLOG)
        except OSError as error:
            sock.close()
            # A name may resolve to an IPv6 address that this machine does not have: the next may do. A taken port
            # is final: the other family's would be a surprise.
            last = error
            if error.errno == errno.EADDRINUSE:
                break
        else:
            return sock
    raise _explain(last, address, flag) from last


def listen_near(address: Address, flag: str) -> socket.socket:
    """As `listen`, on the next free port where that of `address` is taken, and at last on any that is free."""
    for port in range(address.port, min(address.port + _NEIGHBOURS, 65536)):
        try:
            return listen(Address(address.host, port), flag)
        except errors.Refused as refused:
            if refused.reason != _IN_USE:
                raise
    return listen(Address(address.host, 0), flag)


def outward(address: Address) -> tuple[Address, ...]:
    """How other machines reach a server that listens on every address; empty where it listens on one, or has no way out."""
    if not is_wildcard(address.host):
        return ()
    four, six = routes.ANYWHERE
    source = routes.source(six if ":" in address.host else four)
    return (Address(source, address.port),) if source and not is_loopback(source) else ()


def is_wildcard(host: str) -> bool:
    """Whether it means every address of this machine."""
    return host in _WILDCARDS


def is_loopback(host: str) -> bool:
    """Whether only this machine itself gets there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def ip_hosts(texts: Iterable[str]) -> list[str]:
    """The IP addresses among hosts and HOST:PORT texts, each once. Names and wildcards are left out."""
    hosts = [text if _is_ip(text) else text.rpartition(":")[0].strip("[]") for text in texts]
    return list(dict.fromkeys(host for host in hosts if _is_ip(host) and not ipaddress.ip_address(host).is_unspecified))


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _resolve(address: Address, flag: str) -> list[Any]:
    try:
        return list(socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE))
    except OSError as error:
        raise errors.Refused(
            f"cannot listen on {address}: the name {address.host} is not known ({error.strerror})",
            reason="AddressNotFound",
            hint=f"give an IP address of this machine, as in {flag} 127.0.0.1:{address.port}",
        ) from error


def _explain(error: OSError | None, address: Address, flag: str) -> errors.HandfastError:
    code = None if error is None else error.errno
    if code == errno.EADDRINUSE:
        return errors.Refused(
            f"cannot listen on {address}: another process has this port",
            reason=_IN_USE,
            hint=f"choose another port with {flag} HOST:PORT; port 0 picks a free one",
        )
    if code in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
        return errors.Refused(
            f"cannot listen on {address}: this machine has no such address",
            reason="AddressNotAvailable",
            hint=f"give an address of this machine, as in {flag} 127.0.0.1:{address.port}",
        )
    if code in {errno.EACCES, errno.EPERM}:
        return errors.Refused(
            f"cannot listen on {address}: not allowed", reason="AddressNotAllowed", hint="ports below 1024 need root"
        )
    why = "nothing to bind to" if error is None else (error.strerror or type(error).__name__).lower()
    return errors.Unavailable(f"cannot listen on {address}: {why}", reason="AddressNotAvailable")


def bound(sock: socket.socket, address: Address) -> Address:
    """What `sock` really listens on: the host of `address`, which it was made for, and the port that the kernel chose."""
    return Address(address.host, int(sock.getsockname()[1]))
