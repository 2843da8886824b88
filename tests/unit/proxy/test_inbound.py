# SPDX-License-Identifier: Apache-2.0
"""What Envoy is told of connections to a workload, and when. What it does by it is in tests/scenarios/test_mesh_proxy_run.py."""

from __future__ import annotations

from typing import Any

from handfast.proxy import inbound
from handfast.rules.envoy import ports, resources
from handfast.wire import ads
from tests.world.clock import MovableClock

NAME = "web.shop.sa.linkerd-identity.linkerd.cluster.local"
WEB, MAIL = ports.Port(number=80, application=8080), ports.Port(number=25, application=2525, opaque=True)


class Recorded(ads.Ads):
    """The listeners that are put, in their order."""

    def __init__(self) -> None:
        super().__init__(MovableClock())
        self.listeners: list[str] = []

    def put(self, kind: resources.Kind, name: str, document: Any) -> None:
        super().put(kind, name, document)
        if kind is resources.Kind.LISTENER:
            self.listeners.append(name)


def part(sent: ads.Ads, identity: str = NAME, closed: set[int] | None = None) -> inbound.Inbound:
    tcp = lambda number: number not in (closed or set())  # noqa: E731
    made = inbound.Inbound(sent, "127.0.0.1", [WEB, MAIL], identity=identity, tcp=tcp)
    made.begin()
    return made


def test_a_renewal_puts_no_listener_and_another_lifetime_those_of_tls_alone():
    sent = Recorded()
    made = part(sent)
    assert sent.listeners == ["inbound-80", "inbound-25"]
    # An opaque port passes bytes, in every state of the certificate alike.
    made.show(certified=True, longest=8640)
    assert sent.listeners[2:] == ["inbound-80"]
    made.show(certified=True, longest=8640)
    assert sent.listeners[3:] == []
    made.show(certified=True, longest=60)
    assert sent.listeners[3:] == ["inbound-80"]
    made.show(certified=False, longest=60)
    made.show(certified=False, longest=8640)
    assert sent.listeners[4:] == ["inbound-80"]


def test_a_plain_proxy_is_told_of_no_certificate():
    sent = Recorded()
    made = part(sent, "")
    made.show(certified=False, longest=60)
    assert sent.listeners == ["inbound-80", "inbound-25"]


def test_who_may_call_changes_a_listener_only_where_bytes_are_let_in_or_not():
    sent, closed = Recorded(), {80}
    made = part(sent, closed=closed)
    assert sent.listeners == ["inbound-80", "inbound-25"]
    made.judge()
    assert sent.listeners[2:] == []
    closed.add(25)
    made.judge()
    assert sent.listeners[2:] == ["inbound-25"]
    closed.clear()
    made.judge()
    assert sent.listeners[3:] == ["inbound-80", "inbound-25"]


def test_what_has_to_be_acknowledged_is_what_the_state_needs():
    made = part(Recorded())
    first = {("LISTENER", "inbound-80"), ("LISTENER", "inbound-25")}
    assert _keys(made) == first
    made.show(certified=True, longest=60)
    assert _keys(made) - first == {("SECRET", "identity"), ("SECRET", "anchors")}


def _keys(arriving: inbound.Inbound) -> set[tuple[str, str]]:
    return {(kind.name, name) for kind, name in arriving.keys()}  # noqa: SIM118  not a mapping
