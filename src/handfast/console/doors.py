# SPDX-License-Identifier: Apache-2.0
"""Which requests are let as far as a session: against other sites, other names and other networks. It knows no session and no page.

1. The client's address is in the networks that were named, where the console listens for more than this machine.
2. The Host header is a name of this console. Whoever has a name of their own lead here (DNS rebinding) is turned away, whatever else they show.
3. The method is GET, HEAD or POST.
4. A POST comes from a page of this console: its Origin is the console's own, and Sec-Fetch-Site, which every current browser sends, says `same-origin`.
5. A GET that another site had sent gets nothing but the page that says how to open the console: the cookie is not sent along (SameSite), and
   Sec-Fetch-Site is looked at all the same.

| who | holding | tries | stopped by | shown in tests/unit/console/test_doors.py |
|---|---|---|---|---|
| a site that the operator visits | a name that leads to 127.0.0.1 | read pages as if they were its own | 2 | test_another_name_is_turned_away |
| … | a form that posts to the console | have something approved | 4 | test_a_post_from_elsewhere_is_turned_away |
| … | an old browser that says no Sec-Fetch-Site | the same | 4: Origin | test_a_post_without_an_origin_is_turned_away |
| … | a frame, a script or an image | show or read a page | 5, and the headers of `answers` | test_a_page_cannot_be_shown_inside_another |
| a program on another port | the same host name | post to the console | 4: `same-site` is not `same-origin` | test_another_port_is_another_origin |
| a stranger on the network | the address and TLS | find the door | 1 | test_only_networks_that_were_named |
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from handfast import errors
from handfast.rules import decision, networks
from handfast.runtime import addresses

METHODS: Final = frozenset({"GET", "HEAD", "POST"})
_USUAL_PORTS: Final = {"http": 80, "https": 443}
_OWN: Final = frozenset({"same-origin", "none"})
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


class NotOurs(errors.Refused):
    """A request that is not let in, with the code of the answer."""

    def __init__(self, code: int, message: str, *, reason: str, hint: str = "") -> None:
        super().__init__(message, reason=reason, hint=hint)
        self.code = code


@dataclass(frozen=True, slots=True)
class Request:
    """What the doors look at."""

    method: str
    address: str
    headers: Mapping[str, str]


class Doors:
    """Those of one console."""

    def __init__(self, scheme: str, hosts: frozenset[str], allowed: networks.Networks | None) -> None:
        # A browser leaves out the port that every scheme has by itself.
        usual = f":{_USUAL_PORTS[scheme]}"
        self._hosts = hosts | {host.removesuffix(usual) for host in hosts}
        self._origins = {f"{scheme}://{host}" for host in self._hosts}
        self._allowed = allowed
        self._own = min(self._origins)

    def require(self, request: Request) -> None:
        """Return if a request may go on, else `NotOurs`."""
        # 1. from a network that was named
        if self._allowed is not None:
            verdict = self._allowed.holds(request.address)
            if isinstance(verdict, decision.Deny):
                raise NotOurs(403, verdict.sentence, reason=verdict.reason, hint="see --networks of `handfast console`")
        # 2. by a name of ours
        host = request.headers.get("Host", "").lower()
        if host not in self._hosts:
            raise NotOurs(
                421,
                "this console is not called by the name in this address",
                reason="HostNotOurs",
                hint=f"open {self._own}",
            )
        # 3. by a method that there is
        if request.method not in METHODS:
            raise NotOurs(405, "a page is read with GET and a form is sent with POST", reason="MethodNotAllowed")
        # 4. from a page of ours
        site = request.headers.get("Sec-Fetch-Site", "")
        if request.method == "POST":
            self._require_own_page(request.headers.get("Origin", ""), site)

    def is_led_here(self, request: Request) -> bool:
        """Whether another site had a browser send this (5)."""
        return request.headers.get("Sec-Fetch-Site", "none") not in _OWN

    def _require_own_page(self, origin: str, site: str) -> None:
        if origin not in self._origins or (site and site != "same-origin"):
            raise NotOurs(
                403,
                "this form was not sent from a page of this console",
                reason="OriginNotOurs",
                hint="nothing was done; open the console and use its own pages",
            )


def hosts_of(listen: addresses.Address, names: tuple[str, ...]) -> frozenset[str]:
    """What the console is called in addresses: loopback by its three names, else `names` and where it listens."""
    if addresses.is_loopback(listen.host):
        found = [f"{name}:{listen.port}" for name in _LOOPBACK]
        return frozenset([*found, str(listen).lower()])
    own = () if addresses.is_wildcard(listen.host) else (listen.host,)
    if not names and not own:
        raise errors.Refused(
            "the certificate of --tls-cert-file has no name by which the console could be called",
            reason="ConsoleNotPrivate",
            hint="give one with subject alternative names, or listen on one address",
        )
    return frozenset(f"{_bracketed(name)}:{listen.port}".lower() for name in (*names, *own))


def _bracketed(name: str) -> str:
    try:
        return f"[{name}]" if ipaddress.ip_address(name).version == 6 else name
    except ValueError:
        return name
