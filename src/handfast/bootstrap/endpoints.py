# SPDX-License-Identifier: Apache-2.0
"""Reads the address of an API server as people type it, and as kubeconfigs hold it.

It resolves no name and opens no connection. What is accepted, in order of checking:

1. `host`, `host:port`, `[v6]`, `[v6]:port`, or an https URL of which only host, port and path are given. Another scheme
   is refused by name: a token over http would be a token for everybody on the way.
2. A typed address without a port has port 6443, also when it is a URL; the `server` of a kubeconfig without a port has
   443, as every client of Kubernetes takes it.
3. An IPv6 address is in brackets: without them nobody can say where the port begins. Zones are refused, because no
   certificate can name them.
4. A host of digits and dots is an IPv4 address in full; any other is a DNS name in ASCII, kept in lower case.
5. A port is a number from 1 to 65535.
6. A URL has no line breaks or tabs in it, which Python's parser would drop, and others would not.

Credentials in a URL are refused, and not repeated in the error.
"""

from __future__ import annotations

import ipaddress
import re
import urllib.parse
from typing import Final

import msgspec

from handfast import errors

DEFAULT_PORT: Final = 6443
_HTTPS_PORT: Final = 443
_MAX_QUOTED: Final = 256
_LABEL: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
# Less than RFC 3986 allows: nothing that a shell reads otherwise.
_PATH: Final = re.compile(r"(?:/[A-Za-z0-9._~%+=:-]+)*")
_HINT: Final = "write host, host:port, [v6]:port or https://host:port"


class Endpoint(msgspec.Struct, frozen=True):
    """Where an API server is."""

    host: str
    port: int
    path: str = ""

    @property
    def url(self) -> str:
        """The base of its URLs, without a slash at the end."""
        return f"https://{self}"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}{self.path}"


def parse(text: str, default_port: int = DEFAULT_PORT) -> Endpoint:
    """An address as it was typed (checks 1 to 5); another service than the API server has another port."""
    return _parse(text, default_port)


def of_server(url: str) -> Endpoint:
    """The `server` of a kubeconfig, which has to be an https URL."""
    if _SCHEME.match(url) is None:
        raise _refused(f"{_quoted(url)} is not an https URL")
    return _parse(url, _HTTPS_PORT)


def _parse(text: str, default_port: int) -> Endpoint:
    if "@" in text:
        raise _refused("credentials do not belong in an address")
    # 1. an address, or an https URL
    rest, path = text, ""
    scheme = _SCHEME.match(text)
    if scheme is not None:
        if scheme[1].lower() != "https":
            raise _refused(f"{_quoted(text)} has the scheme {scheme[1]}; only https is allowed")
        rest, path = _split_url(text)
    host, port = _split_port(rest, text)
    return Endpoint(_host(host, text), default_port if port is None else _port(port, text), path)


def _split_url(text: str) -> tuple[str, str]:
    # 6. nothing that a parser would drop
    if not text.isprintable():
        raise _refused(f"{_quoted(text)} is not an https URL")
    try:
        split = urllib.parse.urlsplit(text)
    except ValueError:
        raise _refused(f"{_quoted(text)} is not an https URL") from None
    if split.query or split.fragment or "?" in text or "#" in text:
        raise _refused(f"{_quoted(text)} has a query or a fragment; give the base of the URL only")
    path = split.path.rstrip("/")
    if _PATH.fullmatch(path) is None:
        raise _refused(f"{_quoted(text)} has a path that is no path of a URL")
    return split.netloc, path


def _split_port(rest: str, text: str) -> tuple[str, str | None]:
    # 3. brackets around an IPv6 address
    if rest.startswith("["):
        inside, bracket, after = rest[1:].partition("]")
        if not bracket or (after and not after.startswith(":")):
            raise _refused(f"{_quoted(text)} has brackets that are not around an address and before a port")
        return f"[{inside}]", after[1:] if after else None
    if rest.count(":") > 1:
        raise _refused(f"{_quoted(text)} has more than one colon; an IPv6 address is written in brackets")
    host, colon, port = rest.partition(":")
    return host, port if colon else None


def _host(host: str, text: str) -> str:
    # 3. an IPv6 address without a zone
    if host.startswith("["):
        try:
            address = ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            raise _refused(f"{_quoted(text)} has {_quoted(host[1:-1])} in brackets, which is no IPv6 address") from None
        if address.scope_id is not None:
            raise _refused(f"{_quoted(text)} has a zone, which no certificate can name")
        return str(address)
    # 4. an IPv4 address in full, or a DNS name
    if not host:
        raise _refused(f"{_quoted(text)} has no host")
    if re.fullmatch(r"[0-9.]+", host):
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise _refused(f"{_quoted(text)} has the host {_quoted(host)}, which is no IPv4 address") from None
    if len(host) > 253 or _NAME.fullmatch(host) is None:
        raise _refused(f"{_quoted(text)} has a host that is neither a DNS name in ASCII nor an IP address")
    return host.lower()


def _port(port: str, text: str) -> int:
    # 5. a port
    if re.fullmatch(r"[0-9]{1,5}", port) is None or not 1 <= int(port) <= 65535:
        raise _refused(f"{_quoted(text)} has the port {_quoted(port)}, which is no number from 1 to 65535")
    return int(port)


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…")


def _refused(message: str) -> errors.Refused:
    return errors.Refused(f"API endpoint: {message}", reason="BadEndpoint", hint=_HINT)
