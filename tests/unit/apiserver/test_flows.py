# SPDX-License-Identifier: Apache-2.0
"""Budgets per source and user, on a clock that is an argument."""

from __future__ import annotations

import contextlib

import pytest

from handfast.api import status
from handfast.apiserver import flows as flows_module
from handfast.apiserver import (
    identity,
    limits,
    request,
)
from handfast.rules import (
    flow,
    networks,
    user_names,
)

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


def used_up(flows: flows_module.Flows, user: identity.User, info: request.RequestInfo, source: str = HERE) -> int:
    """How many requests are allowed at once."""
    count = 0
    while flows.wait_of_user(user, info, source, 0.0) == 0.0:
        count += 1
    return count


class TestFlows:
    DEFAULTS = limits.Limits()

    def test_users_are_counted_by_name(self) -> None:
        flows = flows_module.Flows(self.DEFAULTS)
        assert used_up(flows, ALICE, PODS) == 1600
        assert flows.wait_of_user(ALICE, CSR, THERE, 0.0) == pytest.approx(1 / 400)
        assert flows.wait_of_user(BOB, PODS, HERE, 0.0) == 0.0
        assert flows.wait_of_user(ALICE, PODS, HERE, 0.0026) == 0.0

    def test_the_identity_service_has_a_budget_of_its_own(self) -> None:
        """Ten thousand workloads that start at once ask for a certificate each."""
        flows = flows_module.Flows(self.DEFAULTS)
        service = identity.User(user_names.MESH_IDENTITY, ("system:serviceaccounts", KNOWN), method="service-account")
        reviews = request.parse("POST", "/apis/authentication.k8s.io/v1/tokenreviews")
        assert used_up(flows, service, reviews) == 20_000
        assert flows.wait_of_user(ACCOUNT, PODS, HERE, 0.0) == 0.0

    def test_the_operator_and_health_are_never_refused(self) -> None:
        flows = flows_module.Flows(self.DEFAULTS)
        used_up(flows, ALICE, PODS)
        assert {flows.wait_of_user(ADMIN, PODS, HERE, 0.0) for _ in range(5000)} == {0.0}
        assert {flows.wait_of_user(ALICE, READY, HERE, 0.0) for _ in range(5000)} == {0.0}

    def test_servers_share_every_budget(self) -> None:
        """Whoever asks three servers gets no more than from one: in requests, and in bytes."""
        servers = [flows_module.Flows(self.DEFAULTS) for _ in range(3)]
        for each in servers:
            each.share(3)
        for user, info, whole in ((ALICE, PODS, 1600), (NODE, PODS, 480), (NODE, CSR, 20), (JOIN, CSR, 200)):
            assert whole - 3 <= sum(used_up(each, user, info) for each in servers) <= whole
        sent = 0
        for each in servers:
            charge = each.charge(NODE, PODS, HERE, 0.0)
            assert charge is not None
            with contextlib.suppress(status.StatusError):
                for size in range(1 << 20, 1 << 30, 1 << 20):
                    charge.sends(size)
                    sent += 1 << 20
        whole = self.DEFAULTS.node_sent_bytes_burst
        assert whole - (3 << 20) <= sent <= whole

    def test_a_share_changes_no_limit_of_one_request(self) -> None:
        flows = flows_module.Flows(self.DEFAULTS)
        flows.share(16)
        size = self.DEFAULTS.renewal_sent_bytes_burst
        charge = flows.charge(NODE, CSR, HERE, 0.0)
        assert charge is not None
        charge.sends(size)
        more = flows.charge(NODE, CSR, HERE, 0.0)
        assert more is not None
        with pytest.raises(status.StatusError) as later:
            more.sends(1)
        with pytest.raises(status.StatusError) as never:
            more.sends(size + 1)
        assert (later.value.reason, never.value.reason) == ("TooManyRequests", "RequestEntityTooLarge")

    def test_renewals_have_a_budget_of_their_own(self) -> None:
        flows = flows_module.Flows(self.DEFAULTS)
        assert used_up(flows, NODE, PODS) == 480
        assert used_up(flows, NODE, CSR) == 20
        assert flows.flow(NODE, CSR) == flow.RENEWAL

    def test_a_flood_of_joins_takes_nothing_from_renewals(self) -> None:
        flows = flows_module.Flows(self.DEFAULTS)
        for number in range(100):
            used_up(flows, JOIN, CSR, f"198.51.100.{number}")
        assert flows.wait_of_user(OTHER_JOIN, CSR, THERE, 0.0) > 0.0
        assert used_up(flows, NODE, CSR) == 20
        assert flows.wait_of_user(ALICE, CSR, HERE, 0.0) == 0.0

    def test_joins_are_counted_by_token_and_source(self) -> None:
        flows = flows_module.Flows(self.DEFAULTS)
        assert used_up(flows, JOIN, CSR) == 200
        assert flows.wait_of_user(JOIN, CSR, HERE, 0.0) == pytest.approx(1 / 50)
        assert flows.wait_of_user(JOIN, CSR, THERE, 0.0) == 0.0
        assert flows.wait_of_user(OTHER_JOIN, CSR, HERE, 0.0) == 0.0

    def test_joins_have_a_ceiling(self) -> None:
        flows = flows_module.Flows(limits.Limits(join_burst=2, joins_burst=5, joins_per_second=1.0))
        allowed = [flows.wait_of_user(JOIN, CSR, f"198.51.100.{number}", 0.0) == 0.0 for number in range(20)]
        assert sum(allowed) == 5
        # What the ceiling refused has cost the machine nothing of its own budget.
        assert [flows.wait_of_user(JOIN, CSR, "198.51.100.19", 3.0) == 0.0 for _ in range(3)] == [True, True, False]

    def test_service_accounts_are_counted_by_source(self) -> None:
        flows = flows_module.Flows(self.DEFAULTS)
        assert used_up(flows, ACCOUNT, PODS) == 800
        assert flows.wait_of_user(ACCOUNT, PODS, THERE, 0.0) == 0.0

    def test_strangers_are_counted_by_source_and_only_once(self) -> None:
        flows = flows_module.Flows(limits.Limits(anonymous_burst=2))
        asked = [flows.wait_of_stranger(HERE, "/version", 0.0) for _ in range(3)]
        assert asked == [0.0, 0.0, pytest.approx(1 / 50)]
        assert flows.wait_of_stranger(THERE, "/version", 0.0) == 0.0
        assert flows.wait_of_user(identity.ANONYMOUS, PODS, HERE, 0.0) == 0.0
        assert flows.wait_of_user(identity.ANONYMOUS, READY, HERE, 0.0) == 0.0

    def test_probes_do_not_suffer_from_what_else_their_source_asks(self) -> None:
        flows = flows_module.Flows(limits.Limits(anonymous_burst=2))
        while flows.wait_of_stranger(HERE, "/version", 0.0) == 0.0:
            pass
        assert [flows.wait_of_stranger(HERE, "/readyz?verbose", 0.0) == 0.0 for _ in range(3)] == [True, True, False]

    def test_refused_credentials_count_for_their_source(self) -> None:
        flows = flows_module.Flows(limits.Limits(anonymous_burst=3))
        assert [flows.wait_after_refusal(HERE, 0.0) == 0.0 for _ in range(4)] == [True, True, True, False]
        assert flows.wait_of_refused_source(HERE, 0.0) > 0.0
        assert flows.wait_of_refused_source("192.0.2.99", 0.0) == 0.0
        # Looking takes nothing.
        assert flows.wait_of_refused_source(HERE, 1.0) == 0.0 == flows.wait_after_refusal(HERE, 1.0)
        # Whoever only asks without a credential does not pay for it, nor the other way round.
        assert flows.wait_of_stranger(HERE, "/version", 0.0) == 0.0
        assert flows.wait_of_user(ALICE, PODS, HERE, 0.0) == 0.0

    def test_an_ipv6_network_is_one_source(self) -> None:
        flows = flows_module.Flows(limits.Limits(anonymous_burst=3, join_burst=3))
        for number in range(3):
            assert flows.wait_of_stranger(f"2001:db8::{number:x}", "/version", 0.0) == 0.0
            assert flows.wait_of_user(JOIN, CSR, f"2001:db8::{number:x}", 0.0) == 0.0
        assert flows.wait_of_stranger("2001:db8::ffff", "/version", 0.0) > 0.0
        assert flows.wait_of_user(JOIN, CSR, "2001:db8::ffff", 0.0) > 0.0
        assert flows.wait_of_stranger("2001:db8:0:1::", "/version", 0.0) == 0.0

    def test_lifted_limits_bound_nothing(self) -> None:
        flows = flows_module.Flows(limits.Limits(lifted=True, user_burst=1, anonymous_burst=1))
        for _ in range(3):
            assert flows.wait_of_user(ALICE, PODS, HERE, 0.0) == 0.0
            assert flows.wait_of_stranger(HERE, "/version", 0.0) == 0.0
            assert flows.wait_after_refusal(HERE, 0.0) == 0.0

    def test_flows_remembered_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(flows_module, "_CALLERS", 10)
        flows = flows_module.Flows(self.DEFAULTS)
        for number in range(25):
            flows.wait_of_user(identity.User(f"u{number}", (KNOWN,)), PODS, HERE, 0.0)
        assert 0 < len(flows._callers) <= 10


EVENTS = request.parse("POST", "/api/v1/namespaces/default/events")
KIB, MIB = 1 << 10, 1 << 20
DAY = 86_400


def paid(
    flows: flows_module.Flows,
    user: identity.User,
    info: request.RequestInfo,
    now: float = 0.0,
    *,
    body: int = 0,
    stored: int = 0,
    before: int = 0,
    source: str = HERE,
) -> str:
    """Send a body, and store an object; the reason of the refusal, if there is one."""
    charge = flows.charge(user, info, source, now)
    assert charge is not None
    try:
        charge.sends(body)
        if stored:
            charge.stores(stored, before)
    except status.StatusError as refused:
        return refused.message
    return ""


def filled(
    flows: flows_module.Flows, users: list[identity.User], info: request.RequestInfo, seconds: int, source: str = HERE
) -> int:
    """How many bytes callers that never stop can have stored, in objects of 64 KiB."""
    total = 0
    for now in range(0, seconds + 1, 600):
        for user in users:
            while not paid(flows, user, info, now, body=64 * KIB, stored=64 * KIB, source=source):
                total += 64 * KIB
    return total


class TestBytes:
    def test_a_token_cannot_fill_the_store(self) -> None:
        flows = flows_module.Flows(limits.Limits())
        first = filled(flows, [JOIN], CSR, 0)
        # By the machine's own budget at first, and by the token's in the end.
        assert first == 8 * MIB
        charge = flows.charge(JOIN, CSR, HERE, 0.0)
        assert charge is not None
        with pytest.raises(status.StatusError) as caught:
            charge.sends(256 * KIB)
        assert (caught.value.code, caught.value.retry_after) == (429, 2)
        assert caught.value.message == (
            "too many bytes: one machine may send with a bootstrap token 8 MiB at once and 128 KiB a second, "
            "please try again later"
        )
        assert filled(flows, [JOIN], CSR, DAY) <= 32 * MIB + DAY * 512 - first + 64 * KIB

    def test_a_token_has_one_budget_wherever_it_is_used(self) -> None:
        flows = flows_module.Flows(limits.Limits())
        assert sum(filled(flows, [JOIN], CSR, 0, f"198.51.100.{number}") for number in range(20)) == 32 * MIB
        assert "one bootstrap token may add to the store 32 MiB at once and 512 bytes a second" in paid(
            flows, JOIN, CSR, body=1, stored=1, source=THERE
        )
        assert paid(flows, OTHER_JOIN, CSR, body=2 * KIB, stored=4 * KIB) == ""
        assert paid(flows, NODE, CSR, body=2 * KIB, stored=4 * KIB) == ""

    def test_all_tokens_together_have_a_ceiling(self) -> None:
        flows = flows_module.Flows(limits.Limits())
        tokens = [identity.User(f"system:bootstrap:{n:06}", ("system:bootstrappers", KNOWN)) for n in range(20)]
        assert filled(flows, tokens, CSR, DAY) <= 128 * MIB + DAY * KIB
        assert paid(flows, OTHER_JOIN, CSR, DAY, body=64 * KIB, stored=64 * KIB).startswith(
            "too many bytes: all bootstrap tokens may add to the store 128 MiB at once and 1 KiB a second"
        )

    def test_a_node_cannot_fill_the_store(self) -> None:
        flows = flows_module.Flows(limits.Limits())
        assert filled(flows, [NODE], EVENTS, 3600) <= 16 * MIB + 3600 * 16 * KIB
        refused = paid(flows, NODE, EVENTS, 3600, body=64 * KIB, stored=64 * KIB)
        assert "one node may add to the store 16 MiB at once and 16 KiB a second" in refused
        other = identity.User("system:node:n2", ("system:nodes", KNOWN))
        assert paid(flows, other, EVENTS, 3600, body=64 * KIB, stored=64 * KIB) == ""
        # Its certificates are none of this, and have their own bound.
        assert filled(flows, [NODE], CSR, DAY) <= 512 * KIB + DAY * 256

    def test_what_is_written_counts_where_it_is_more_than_the_body(self) -> None:
        flows = flows_module.Flows(limits.Limits())
        status_ = request.parse("PATCH", "/api/v1/namespaces/default/pods/p/status")
        wrote = 0
        # A hundred bytes each, for an object that does not grow.
        while not paid(flows, NODE, status_, body=100, stored=MIB, before=MIB):
            wrote += 1
        assert wrote == 32
        # And one that grows to a hundred times what was sent for it.
        flows, grown = flows_module.Flows(limits.Limits()), 0
        while not paid(flows, NODE, status_, body=10 * KIB, stored=MIB, before=0):
            grown += 1
        assert grown == 16

    def test_what_is_known_step_by_step_is_paid_once(self) -> None:
        flows = flows_module.Flows(limits.Limits(node_sent_bytes_burst=100, node_added_bytes_burst=50))
        charge = flows.charge(NODE, EVENTS, HERE, 0.0)
        assert charge is not None
        for size in (10, 10, 60):
            charge.sends(size)
        # A write that is tried again, on another state.
        charge.stores(80, 40)
        charge.stores(80, 35)
        charge.stores(60, 60)
        assert paid(flows, NODE, EVENTS, body=20, stored=5) == ""
        assert "send or write" in paid(flows, NODE, EVENTS, body=1)
        assert "add to the store" in paid(flows, NODE, EVENTS, 60.0, body=0, stored=51)

    def test_what_is_refused_is_not_paid_for(self) -> None:
        flows = flows_module.Flows(limits.Limits(node_sent_bytes_burst=1000, node_added_bytes_burst=100))
        assert paid(flows, NODE, EVENTS, body=100, stored=100) == ""
        for _ in range(3):
            assert "add to the store" in paid(flows, NODE, EVENTS, body=100, stored=50)
            assert "send or write" in paid(flows, NODE, EVENTS, body=901)
        # What was sent was sent.
        assert paid(flows, NODE, EVENTS, body=600) == ""
        assert "send or write" in paid(flows, NODE, EVENTS, body=1)

    def test_to_be_refused_costs_requests(self) -> None:
        """Or somebody over a budget in bytes could ask as often as they like, and be looked at every time."""
        flows = flows_module.Flows(limits.Limits(node_burst=3, node_sent_bytes_burst=100))
        assert paid(flows, NODE, EVENTS, body=100) == ""
        asked = []
        for _ in range(4):
            asked.append(flows.wait_of_user(NODE, EVENTS, HERE, 0.0) == 0.0)
            paid(flows, NODE, EVENTS, body=100)
        assert asked == [True, True, True, False]

    def test_a_refusal_by_the_ceiling_costs_the_machine_nothing(self) -> None:
        flows = flows_module.Flows(limits.Limits(joins_sent_bytes_burst=100, joins_sent_bytes_per_second=1.0))
        assert paid(flows, JOIN, CSR, body=100) == ""
        for _ in range(3):
            assert "all machines that join may send 100 bytes at once and 1 bytes a second" in paid(
                flows, JOIN, CSR, body=60
            )
        assert flows._join_sent._state[JOIN.name, networks.neighbourhood(HERE)][0] == 8 * MIB - 100

    def test_what_never_fits_is_refused_for_good(self) -> None:
        flows = flows_module.Flows(limits.Limits(node_sent_bytes_burst=100))
        charge = flows.charge(NODE, EVENTS, HERE, 0.0)
        assert charge is not None
        with pytest.raises(status.StatusError) as caught:
            charge.sends(101)
        assert (caught.value.code, caught.value.retry_after) == (413, 0)
        assert caught.value.message == (
            "Request entity too large: 101 bytes; limit is 100 bytes, all that one node may send or write at once"
        )
        assert paid(flows, NODE, EVENTS, body=100) == ""

    @pytest.mark.parametrize("user", [ALICE, ADMIN, ACCOUNT, identity.ANONYMOUS])
    def test_users_have_no_budget_in_bytes(self, user: identity.User) -> None:
        assert flows_module.Flows(limits.Limits()).charge(user, EVENTS, HERE, 0.0) is None

    def test_lifted_limits_bound_nothing(self) -> None:
        assert flows_module.Flows(limits.Limits(lifted=True)).charge(NODE, EVENTS, HERE, 0.0) is None


class TestDefaults:
    """What docs/reference/limits.md says no ordinary cluster gets to."""

    def test_a_thousand_machines_join_with_one_token(self) -> None:
        """Within 30 seconds; kubeadm asks about ten times per machine."""
        flows = flows_module.Flows(limits.Limits())
        for machine in range(1000):
            started = machine * 0.03
            for _ in range(10):
                assert flows.wait_of_user(JOIN, CSR, f"10.0.{machine // 250}.{machine % 250}", started) == 0.0

    def test_a_thousand_machines_behind_one_address_join_with_one_token(self) -> None:
        """Each with a request of 2 KiB that is stored as 4, signed and asked for twice; within 30 seconds."""
        flows = flows_module.Flows(limits.Limits())
        for machine in range(2000):
            assert paid(flows, JOIN, CSR, machine * 0.015, body=2 * KIB, stored=4 * KIB) == ""

    def test_machines_join_all_day(self) -> None:
        """A thousand at first, and then one every ten seconds."""
        flows = flows_module.Flows(limits.Limits())
        for machine in range(1000 + DAY // 10):
            assert paid(flows, JOIN, CSR, max(0, machine - 1000) * 10.0, body=2 * KIB, stored=4 * KIB) == ""

    def test_a_node_renews_and_is_not_answered(self) -> None:
        """Both certificates, asked for anew twenty times at once, and then every ten minutes."""
        flows = flows_module.Flows(limits.Limits())
        for tick in range(150):
            assert paid(flows, NODE, CSR, max(0, tick - 20) * 300.0, body=3 * KIB, stored=6 * KIB) == ""

    def test_a_kubelet_with_110_pods(self) -> None:
        """They start at once with long statuses and many Events; from then on all of them crash every ten seconds."""
        flows = flows_module.Flows(limits.Limits())
        status_ = request.parse("PATCH", "/api/v1/namespaces/default/pods/p/status")
        lease = request.parse("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1")
        assert paid(flows, NODE, PODS, body=60 * KIB, stored=60 * KIB) == ""
        for step in range(110 * 10):
            now = step / 100
            assert paid(flows, NODE, status_, now, body=10 * KIB, stored=25 * KIB, before=23 * KIB) == ""
            assert paid(flows, NODE, EVENTS, now, body=2 * KIB, stored=2 * KIB) == ""
        for tick in range(1, 120):
            now = 20.0 + tick * 10
            assert paid(flows, NODE, lease, now, body=500, stored=500, before=500) == ""
            assert paid(flows, NODE, status_, now, body=10 * KIB, stored=60 * KIB, before=60 * KIB) == ""
            for _ in range(110):
                assert paid(flows, NODE, status_, now, body=10 * KIB, stored=25 * KIB, before=25 * KIB - 300) == ""
            # The spam filter of a kubelet lets through one for each Pod in five minutes, after 25.
            for _ in range(4 if tick > 30 else 50):
                assert paid(flows, NODE, EVENTS, now, body=2 * KIB, stored=2 * KIB) == ""

    def test_a_daemon_set_starts_on_a_thousand_nodes(self) -> None:
        flows = flows_module.Flows(limits.Limits())
        for node in range(1000):
            for _ in range(20):
                assert flows.wait_of_user(ACCOUNT, PODS, f"10.0.{node // 250}.{node % 250}", 0.0) == 0.0

    def test_a_kubelet_at_its_own_limits(self) -> None:
        """50 requests and 50 events a second, with bursts of 100 each, and its leases."""
        flows = flows_module.Flows(limits.Limits())
        for _ in range(200):
            assert flows.wait_of_user(NODE, PODS, HERE, 0.0) == 0.0
        for tick in range(2000):
            assert flows.wait_of_user(NODE, PODS, HERE, tick / 102) == 0.0

    def test_kubectl_at_its_own_limits(self) -> None:
        """A burst of 300, then 50 a second: five of them at once."""
        flows = flows_module.Flows(limits.Limits())
        for _ in range(5 * 300):
            assert flows.wait_of_user(ALICE, PODS, HERE, 0.0) == 0.0
        for tick in range(2000):
            assert flows.wait_of_user(ALICE, PODS, HERE, tick / 250) == 0.0
