# SPDX-License-Identifier: Apache-2.0
"""Transparent mode: what is put at first, with a certificate, and when who may call has changed."""

from __future__ import annotations

from typing import Any

from handfast.proxy import transparent
from handfast.rules.envoy import judging, ports, resources, tls
from handfast.rules.envoy import transparent as forms

NAME = "web.ns1.sa.linkerd-identity.linkerd.cluster.local"
PLACE = forms.Place(host="127.0.0.1", port=4143)


class Sent:
    """Notes what is put."""

    def __init__(self) -> None:
        self.rows: list[tuple[resources.Kind, str]] = []
        self.last: dict[str, Any] = {}

    def put(self, kind: resources.Kind, name: str, document: dict[str, Any]) -> None:
        self.rows.append((kind, name))
        self.last = document


def part(identity: str, rows: list[judging.PortJudgement]) -> tuple[transparent.Inbound, Sent]:
    sent = Sent()
    redirected = forms.Redirected(place=PLACE, facts=forms.every(identity))
    return transparent.Inbound(sent, redirected, lambda: rows), sent  # type: ignore[arg-type]


def chains(sent: Sent) -> list[str]:
    return [chain["name"] for chain in sent.last["filter_chains"]]


def test_a_plain_proxy_listens_once_and_has_no_certificate_to_wait_for():
    inbound, sent = part("", [judging.PortJudgement()])
    inbound.begin()
    assert sent.rows == [
        (resources.Kind.CLUSTER, "application"),
        (resources.Kind.CLUSTER, "application-http1"),
        (resources.Kind.LISTENER, "inbound"),
    ]
    inbound.show(certified=False, longest=5)
    assert len(sent.rows) == 3
    assert inbound.keys() == [(resources.Kind.LISTENER, ports.EVERY.listener)]


def test_a_renewal_puts_nothing_and_an_end_puts_the_listener():
    inbound, sent = part(NAME, [judging.PortJudgement()])
    inbound.begin()
    inbound.show(certified=True, longest=5)
    count = len(sent.rows)
    assert list(inbound.keys())[1:] == [(resources.Kind.SECRET, name) for name in (tls.IDENTITY, tls.ANCHORS)]
    inbound.show(certified=True, longest=5)
    assert len(sent.rows) == count
    inbound.show(certified=False, longest=5)
    assert len(sent.rows) == count + 1
    assert len(inbound.keys()) == 1


def test_a_port_where_not_everybody_may_come_in_has_chains_of_its_own():
    rows = [judging.PortJudgement()]
    inbound, sent = part(NAME, rows)
    inbound.begin()
    assert "tcp-9000" not in chains(sent)
    rows.append(judging.PortJudgement(port=9000, permits=judging.Permits(identified=True)))
    rows.append(judging.PortJudgement(port=9001))
    inbound.judge()
    assert "tcp-9000" in chains(sent)
    assert "tcp-9001" not in chains(sent)


async def test_nothing_goes_on_by_itself():
    inbound, sent = part(NAME, [judging.PortJudgement()])
    await inbound.run()
    assert sent.rows == []
