# SPDX-License-Identifier: Apache-2.0
"""Token buckets per source and user, on a clock that is an argument; and the written table of limits."""

from __future__ import annotations

import dataclasses
import inspect
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web_protocol

from handfast.api import bounds
from handfast.apiserver import (
    audit_log,
    authn,
    client_cas,
    connection,
    gate,
    identity,
    impersonation,
    limits,
    loop_holds,
    request,
    service_account_tokens,
    webhook_client,
)
from handfast.apiserver import token_limits as enforcing
from handfast.bootstrap import cluster_info, jws, token_limits
from handfast.pki import chains
from handfast.rules import flow, networks, rbac_escalation, rbac_grants, token_requests, webhook_answers, webhooks
from handfast.telemetry import rotating


class TestBuckets:
    def test_a_burst_then_the_rate(self) -> None:
        buckets = limits.Buckets(rate=2.0, burst=3)
        assert [buckets.wait("a", 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
        assert buckets.wait("a", 0.5) == 0.0
        assert buckets.wait("a", 0.5) == pytest.approx(0.5)

    def test_a_refusal_costs_nothing(self) -> None:
        buckets = limits.Buckets(rate=1.0, burst=1)
        buckets.wait("a", 0.0)
        for _ in range(1000):
            assert buckets.wait("a", 0.5) == pytest.approx(0.5)
        assert buckets.wait("a", 1.0) == 0.0

    def test_rest_never_saves_more_than_the_burst(self) -> None:
        buckets = limits.Buckets(rate=100.0, burst=2)
        buckets.wait("a", 0.0)
        assert [buckets.wait("a", 1e9) == 0.0 for _ in range(3)] == [True, True, False]

    def test_sources_do_not_share(self) -> None:
        buckets = limits.Buckets(rate=1.0, burst=1)
        assert buckets.wait("a", 0.0) == 0.0
        assert buckets.wait("b", 0.0) == 0.0
        assert buckets.wait("a", 0.0) > 0.0

    def test_memory_is_bounded_and_the_busy_are_remembered(self) -> None:
        buckets = limits.Buckets(rate=1.0, burst=1, sources=10)
        for number in range(10_000):
            buckets.wait("flood", 0.0)
            buckets.wait(f"10.0.{number}", 0.0)
        assert len(buckets._state) == 10
        assert buckets.wait("flood", 0.0) > 0.0

    def test_the_one_not_seen_for_longest_is_forgotten(self) -> None:
        buckets = limits.Buckets(rate=1.0, burst=1, sources=3)
        for source in "abca":
            buckets.wait(source, 0.0)
        for newcomer, remembered in (("d", "cad"), ("e", "ade"), ("d", "aed"), ("f", "edf")):
            buckets.wait(newcomer, 0.0)
            # Who is remembered has to wait; who is forgotten may begin anew.
            assert {source for source in "abcdef" if buckets.look(source, 0.0) > 0.0} == set(remembered)

    def test_given_back(self) -> None:
        buckets = limits.Buckets(rate=1.0, burst=1)
        for _ in range(3):
            assert buckets.wait("a", 0.0) == 0.0
            buckets.give_back("a")


KNOWN = identity.AUTHENTICATED
ALICE = identity.User("alice", (KNOWN,), method="x509")
BOB = identity.User("bob", (KNOWN,), method="x509")
ADMIN = identity.User("admin", ("system:masters", KNOWN), method="x509")
NODE = identity.User("system:node:n1", ("system:nodes", KNOWN), method="x509")
JOIN = identity.User("system:bootstrap:abcdef", ("system:bootstrappers", KNOWN), method="bootstrap-token")
OTHER_JOIN = identity.User("system:bootstrap:ghijkl", ("system:bootstrappers", KNOWN), method="bootstrap-token")
ACCOUNT = identity.User("system:serviceaccount:a:b", ("system:serviceaccounts", KNOWN), method="service-account")

PODS = request.parse("GET", "/api/v1/pods")
CSR = request.parse("POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests")
READY = request.parse("GET", "/readyz")

HERE, THERE = "192.0.2.1", "192.0.2.2"


def used_up(flows: limits.Flows, user: identity.User, info: request.RequestInfo, source: str = HERE) -> int:
    """How many requests are allowed at once."""
    count = 0
    while flows.wait(user, info, source, 0.0) == 0.0:
        count += 1
    return count


class TestFlows:
    DEFAULTS = limits.Limits()

    def test_users_are_counted_by_name(self) -> None:
        flows = limits.Flows(self.DEFAULTS)
        assert used_up(flows, ALICE, PODS) == 1600
        assert flows.wait(ALICE, CSR, THERE, 0.0) == pytest.approx(1 / 400)
        assert flows.wait(BOB, PODS, HERE, 0.0) == 0.0
        assert flows.wait(ALICE, PODS, HERE, 0.0026) == 0.0

    def test_the_operator_and_health_are_never_refused(self) -> None:
        flows = limits.Flows(self.DEFAULTS)
        used_up(flows, ALICE, PODS)
        assert {flows.wait(ADMIN, PODS, HERE, 0.0) for _ in range(5000)} == {0.0}
        assert {flows.wait(ALICE, READY, HERE, 0.0) for _ in range(5000)} == {0.0}

    def test_renewals_have_a_budget_of_their_own(self) -> None:
        flows = limits.Flows(self.DEFAULTS)
        assert used_up(flows, NODE, PODS) == 480
        assert used_up(flows, NODE, CSR) == 20
        assert flows.flow(NODE, CSR) == flow.RENEWAL

    def test_a_flood_of_joins_takes_nothing_from_renewals(self) -> None:
        flows = limits.Flows(self.DEFAULTS)
        for number in range(100):
            used_up(flows, JOIN, CSR, f"198.51.100.{number}")
        assert flows.wait(OTHER_JOIN, CSR, THERE, 0.0) > 0.0
        assert used_up(flows, NODE, CSR) == 20
        assert flows.wait(ALICE, CSR, HERE, 0.0) == 0.0

    def test_joins_are_counted_by_token_and_source(self) -> None:
        flows = limits.Flows(self.DEFAULTS)
        assert used_up(flows, JOIN, CSR) == 200
        assert flows.wait(JOIN, CSR, HERE, 0.0) == pytest.approx(1 / 50)
        assert flows.wait(JOIN, CSR, THERE, 0.0) == 0.0
        assert flows.wait(OTHER_JOIN, CSR, HERE, 0.0) == 0.0

    def test_joins_have_a_ceiling(self) -> None:
        flows = limits.Flows(limits.Limits(join_burst=2, joins_burst=5, joins_per_second=1.0))
        allowed = [flows.wait(JOIN, CSR, f"198.51.100.{number}", 0.0) == 0.0 for number in range(20)]
        assert sum(allowed) == 5
        # What the ceiling refused has cost the machine nothing of its own budget.
        assert [flows.wait(JOIN, CSR, "198.51.100.19", 3.0) == 0.0 for _ in range(3)] == [True, True, False]

    def test_service_accounts_are_counted_by_source(self) -> None:
        flows = limits.Flows(self.DEFAULTS)
        assert used_up(flows, ACCOUNT, PODS) == 800
        assert flows.wait(ACCOUNT, PODS, THERE, 0.0) == 0.0

    def test_strangers_are_counted_by_source_and_only_once(self) -> None:
        flows = limits.Flows(limits.Limits(anonymous_burst=2))
        asked = [flows.stranger(HERE, "/version", 0.0) for _ in range(3)]
        assert asked == [0.0, 0.0, pytest.approx(1 / 50)]
        assert flows.stranger(THERE, "/version", 0.0) == 0.0
        assert flows.wait(identity.ANONYMOUS, PODS, HERE, 0.0) == 0.0
        assert flows.wait(identity.ANONYMOUS, READY, HERE, 0.0) == 0.0

    def test_probes_do_not_suffer_from_what_else_their_source_asks(self) -> None:
        flows = limits.Flows(limits.Limits(anonymous_burst=2))
        while flows.stranger(HERE, "/version", 0.0) == 0.0:
            pass
        assert [flows.stranger(HERE, "/readyz?verbose", 0.0) == 0.0 for _ in range(3)] == [True, True, False]

    def test_refused_credentials_count_for_their_source(self) -> None:
        flows = limits.Flows(limits.Limits(anonymous_burst=3))
        assert [flows.failed(HERE, 0.0) == 0.0 for _ in range(4)] == [True, True, True, False]
        assert flows.worn_out(HERE, 0.0) > 0.0
        assert flows.worn_out("192.0.2.99", 0.0) == 0.0
        # Looking takes nothing.
        assert flows.worn_out(HERE, 1.0) == 0.0 == flows.failed(HERE, 1.0)
        # Whoever only asks without a credential does not pay for it, nor the other way round.
        assert flows.stranger(HERE, "/version", 0.0) == 0.0
        assert flows.wait(ALICE, PODS, HERE, 0.0) == 0.0

    def test_an_ipv6_network_is_one_source(self) -> None:
        flows = limits.Flows(limits.Limits(anonymous_burst=3, join_burst=3))
        for number in range(3):
            assert flows.stranger(f"2001:db8::{number:x}", "/version", 0.0) == 0.0
            assert flows.wait(JOIN, CSR, f"2001:db8::{number:x}", 0.0) == 0.0
        assert flows.stranger("2001:db8::ffff", "/version", 0.0) > 0.0
        assert flows.wait(JOIN, CSR, "2001:db8::ffff", 0.0) > 0.0
        assert flows.stranger("2001:db8:0:1::", "/version", 0.0) == 0.0

    def test_lifted(self) -> None:
        flows = limits.Flows(limits.Limits(lifted=True, user_burst=1, anonymous_burst=1))
        for _ in range(3):
            assert flows.wait(ALICE, PODS, HERE, 0.0) == 0.0
            assert flows.stranger(HERE, "/version", 0.0) == 0.0
            assert flows.failed(HERE, 0.0) == 0.0

    def test_flows_remembered_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "_CALLERS", 10)
        flows = limits.Flows(self.DEFAULTS)
        for number in range(25):
            flows.wait(identity.User(f"u{number}", (KNOWN,)), PODS, HERE, 0.0)
        assert 0 < len(flows._callers) <= 10


class TestDefaults:
    """What docs/reference/limits.md says no ordinary cluster gets to."""

    def test_a_thousand_machines_join_with_one_token(self) -> None:
        """Within 30 seconds; kubeadm asks about ten times per machine."""
        flows = limits.Flows(limits.Limits())
        for machine in range(1000):
            started = machine * 0.03
            for _ in range(10):
                assert flows.wait(JOIN, CSR, f"10.0.{machine // 250}.{machine % 250}", started) == 0.0

    def test_a_daemon_set_starts_on_a_thousand_nodes(self) -> None:
        flows = limits.Flows(limits.Limits())
        for node in range(1000):
            for _ in range(20):
                assert flows.wait(ACCOUNT, PODS, f"10.0.{node // 250}.{node % 250}", 0.0) == 0.0

    def test_a_kubelet_at_its_own_limits(self) -> None:
        """50 requests and 50 events a second, with bursts of 100 each, and its leases."""
        flows = limits.Flows(limits.Limits())
        for _ in range(200):
            assert flows.wait(NODE, PODS, HERE, 0.0) == 0.0
        for tick in range(2000):
            assert flows.wait(NODE, PODS, HERE, tick / 102) == 0.0

    def test_kubectl_at_its_own_limits(self) -> None:
        """A burst of 300, then 50 a second: five of them at once."""
        flows = limits.Flows(limits.Limits())
        for _ in range(5 * 300):
            assert flows.wait(ALICE, PODS, HERE, 0.0) == 0.0
        for tick in range(2000):
            assert flows.wait(ALICE, PODS, HERE, tick / 250) == 0.0


REFERENCE = pathlib.Path(__file__).parents[3] / "docs" / "reference" / "limits.md"


def _shown(name: str, value: float) -> str:
    if not name.endswith("_bytes"):
        return f"{value:g}"
    return f"{value / (1 << 20):g} MiB" if value >= 1 << 20 else f"{value / (1 << 10):g} KiB"


@pytest.mark.parametrize("field", [field for field in dataclasses.fields(limits.Limits) if field.name != "lifted"])
def test_every_default_is_written_down(field: dataclasses.Field[float]) -> None:
    row = next(line for line in REFERENCE.read_text().splitlines() if f"`{field.name}`" in line)
    assert isinstance(field.default, int | float)
    assert f"| {_shown(field.name, field.default)} |" in row


def _default(function: Callable[..., Any], parameter: str) -> int:
    value = inspect.signature(function).parameters[parameter].default
    assert isinstance(value, int)
    return value


def _bytes(value: int) -> str:
    return _shown("_bytes", value)


def _raised(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


# What the table "Fixed" says, out of the code.
FIXED = {
    "header lines of a request": str(_default(web_protocol.RequestHandler.__init__, "max_headers")),
    "sources or users whose rate is remembered": (
        f"{limits._SOURCES:,} for each budget (service accounts: {limits._ACCOUNT_SOURCES:,})"
    ),
    "sources for which an accepted credential speaks": (
        f"{gate._PROVEN_SOURCES:,}, for {gate.PROVEN_SECONDS / 60:g} minutes"
    ),
    "callers whose budget is remembered": f"{limits._CALLERS:,}",
    "addresses whose verdict is remembered, of each list of networks": str(networks._REMEMBERED),
    "lines of the audit log about requests over their rate": f"{audit_log._LIMITED_PER_SECOND:g} a second",
    "lines of the audit log that wait to be written": _bytes(_default(rotating.LineWriter.__init__, "waiting_bytes")),
    "one step of a request, while nobody else is served": f"{loop_holds.STEP_SECONDS * 1000:g} ms",
    "lines of the log about such steps": f"{loop_holds.LINES_PER_SECOND} a second",
    "what is read and thrown away of a refused body": f"{connection.LINGERING_SECONDS:g} s",
    "certificates in a client's chain": str(chains.MAX_CHAIN),
    "certificates on a path to a CA": str(chains.MAX_DEPTH),
    "chains whose verdict is remembered": str(authn._REMEMBERED),
    "a bearer token": _bytes(authn.TOKEN_BYTES),
    "service account tokens whose signature is remembered": str(service_account_tokens._REMEMBERED),
    "lifetime of a requested service account token": (
        f"{token_requests.MIN_SECONDS // 60} minutes to 2{_raised(token_requests.MAX_SECONDS.bit_length() - 1)} seconds"
    ),
    "uses of a token with `--max-uses`": f"1 to {token_limits.MAX_USES}",
    "uses that are listed of another token": f"the first {token_limits.KEPT // 2} and the newest {token_limits.KEPT // 2}",
    "tries to write a use down": str(enforcing._TRIES),
    "`kubeconfig` and signatures in `cluster-info`": _bytes(cluster_info.MAX_DATA),
    "a cluster's description that nobody vouches for": _bytes(cluster_info.MAX_UNVERIFIED),
    "a token's signature that is read": f"{jws._MAX_LENGTH} characters",
    "CAs that pass the handshake without being trusted any more": (
        f"{client_cas.MAX_REMEMBERED}, or {_bytes(client_cas.MAX_REMEMBERED_BYTES)}"
    ),
    "groups and keys of extra in impersonation headers": str(impersonation._LIMIT),
    "single permissions of one role that are indexed": str(rbac_grants.BUDGET),
    "single permissions of rules that somebody gives away": f"{rbac_escalation.LIMIT:,}",
    "a webhook's answer": _bytes(webhook_client.MAX_ANSWER),
    "a webhook's time": f"its `timeoutSeconds`, 1 to 30, else {webhooks._DEFAULT_SECONDS} s",
    "values of a webhook's answer, and of its patch": f"{webhook_answers.MAX_VALUES:,}",
    "warnings of one webhook's answer": str(webhook_answers.MAX_WARNINGS),
    # No interface tells it.
    "TLS 1.2 sessions that can be resumed by number": "20,480",
}


def _rows(title: str) -> dict[str, str]:
    section = REFERENCE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")] for line in section.splitlines() if line.startswith("|")]
    return {row[1]: row[2] for row in rows[2:]}


def test_what_is_fixed_is_written_down() -> None:
    assert _rows("Fixed") == FIXED


def test_how_much_a_body_may_hold_is_written_down() -> None:
    said = {what: most for what, most in _rows("Documents").items() if "values" in what or what.startswith("… of a")}
    numbers = (bounds.USUAL, bounds.MANY, bounds.PATCH, bounds.QUESTION, bounds.FEW, bounds.LIGHT)
    assert list(said.values()) == [f"{number:,}" for number in numbers]
