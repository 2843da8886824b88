# SPDX-License-Identifier: Apache-2.0
"""How much anyone may ask, and how much joins and nodes may send and have kept.

The pipeline asks here with each request. The budgets bound what a flood costs; they are not an access rule. The numbers
are in `limits`; connections have their own (`serving.gate`). `rules.flow` says which budget a request falls under:

1. Strangers, and those whose credential is refused, share the budget of their source; health paths are counted apart.
2. Users are counted by name, nodes too, and a node's renewals apart from the rest of what it asks. So is the mesh's identity service.
3. Service accounts are counted by name and source: the Pods of a DaemonSet share a name, and start together.
4. Joins are counted by token and source, and all of them together: one token may bring a thousand machines, and a
   flood of joins takes nothing from anyone else.
5. A source is what one machine can take addresses from: an IPv4 address, or the /64 of an IPv6 one.
6. A request over its rate takes nothing from any budget. One over a budget in bytes still counts as a request, because it
   was read until its size was known; the bytes that were refused do not count.
7. What a join or a node *sends* has a budget in bytes beside that of requests: the body, or what is written to the
   store for it where that is more, since a short patch can write a long object.
8. What it *adds* to the store has another budget, which fills again slowly. It is counted by token, for all joins
   together, by node, and apart for a node's certificates.
9. What is more than a budget ever holds is refused with 413, since it would be 429 for ever.
10. Servers of one store share every budget: each has the part that `peers` tells. Whoever asks all of them gets no more than
    whoever asks one, and one request for each server.

Users and service accounts have no budget in bytes: whoever may create objects may fill the store by right.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/test_flows.py |
|---|---|---|---|---|
| a machine | a bootstrap token | flood the server with joins, so that nodes lose their certificates | 2, 4 | test_a_flood_of_joins_takes_nothing_from_renewals |
| many machines | one stolen bootstrap token | the same from many addresses | 4: the ceiling of all joins | test_joins_have_a_ceiling |
| a stranger | a /64 of addresses | be somebody else for each request | 5 | test_an_ipv6_network_is_one_source |
| a stranger | guesses of a token | guess without end | 1 | test_refused_credentials_count_for_their_source |
| a machine | a bootstrap token | fill the store with long requests | 7, 8 | test_a_token_cannot_fill_the_store |
| many machines | several stolen tokens | the same together | 8: the ceiling of all joins | test_all_tokens_together_have_a_ceiling |
| a node, taken over | its certificate | fill the store with Events | 8 | test_a_node_cannot_fill_the_store |
| … | … | write much with little: short patches of a long object, or `copy` in a JSON patch | 7, 8 count what is stored | test_what_is_written_counts_where_it_is_more_than_the_body |
| a machine | a bootstrap token, several servers | a budget from each of them | 10 | test_servers_share_every_budget |
| a Pod, taken over | a service account's token | starve the Pods of that account elsewhere | 3 | test_service_accounts_are_counted_by_source |
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from handfast.api import status
from handfast.apiserver import identity, request
from handfast.apiserver import limits as limits_module
from handfast.rules import flow, networks
from handfast.serving import buckets as buckets_module

# Callers whose flow is remembered.
_CALLERS = 10_000
# Service accounts have a bucket for each source.
_ACCOUNT_SOURCES = 50_000


# One bucket that a request takes from: whose it is, and what a refusal says is counted there. Plain tuples, because two to
# four are made for each write of a node or a join.
Budget = tuple[buckets_module.Buckets, Hashable, str]


class Charge:
    """What one request takes from budgets in bytes, step by step as its size becomes known.

    It is paid by the time at which the request began: buckets do not mind the order.
    """

    __slots__ = ("_added", "_added_bytes", "_now", "_sent", "_sent_bytes")

    def __init__(self, sent: Sequence[Budget], added: Sequence[Budget], now: float) -> None:
        self._sent = sent
        self._added = added
        self._now = now
        self._sent_bytes = 0
        self._added_bytes = 0

    def sends(self, size: int) -> None:
        """The request takes so many bytes in all, as far as is known by now: of its body, or in the store."""
        if size > self._sent_bytes:
            self._take(self._sent, self._sent_bytes, size - self._sent_bytes)
            self._sent_bytes = size

    def stores(self, size: int, before: int = 0) -> None:
        """The object will take so many bytes, and took so many before. To try the same again costs nothing more."""
        # 7. what is written, where it is more than what was sent
        self.sends(size)
        # 8. what there is more of afterwards
        more = size - before - self._added_bytes
        if more > 0:
            self._take(self._added, self._added_bytes, more)
            self._added_bytes += more

    def _take(self, budgets: Sequence[Budget], before: int, size: int) -> None:
        for index, (buckets, key, what) in enumerate(budgets):
            # 9. more than the budget ever holds
            refusal = _never(what, buckets, before + size) if before + size > buckets.burst else None
            if refusal is None:
                seconds = buckets.wait(key, self._now, size)
                if seconds == 0.0:
                    continue
                refusal = _not_now(what, buckets, seconds)
            # 6. what is refused is not paid for
            for taken, whose, _ in budgets[:index]:
                taken.give_back(whose, size)
            raise refusal


def _never(what: str, buckets: buckets_module.Buckets, size: int) -> status.StatusError:
    text = f"Request entity too large: {size} bytes; limit is {shown(buckets.burst)}, all that {what} at once"
    return status.StatusError("RequestEntityTooLarge", text)


def _not_now(what: str, buckets: buckets_module.Buckets, seconds: float) -> status.StatusError:
    text = f"too many bytes: {what} {shown(buckets.burst)} at once and {shown(buckets.rate)} a second"
    return status.StatusError(
        "TooManyRequests", f"{text}, please try again later", retry_after=max(1, math.ceil(seconds))
    )


def shown(size: float) -> str:
    """A number of bytes as people write it."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size:g} bytes"


class Flows:
    """The budgets of all requests. What is called a wait is in seconds: 0.0 means go on."""

    def __init__(self, limits: limits_module.Limits) -> None:
        self._lifted = limits.lifted
        self._strangers = buckets_module.Buckets(limits.anonymous_per_second, limits.anonymous_burst)
        # Of their own: whoever only asks without a credential must not keep others behind the same address from joining.
        self._failures = buckets_module.Buckets(limits.anonymous_per_second, limits.anonymous_burst)
        self._probes = buckets_module.Buckets(limits.anonymous_per_second, limits.anonymous_burst)
        self._joins = buckets_module.Buckets(limits.joins_per_second, limits.joins_burst)
        self._by_name = {
            flow.USER: buckets_module.Buckets(limits.user_per_second, limits.user_burst),
            flow.NODE: buckets_module.Buckets(limits.node_per_second, limits.node_burst),
            flow.RENEWAL: buckets_module.Buckets(limits.renewal_per_second, limits.renewal_burst),
            flow.MESH_IDENTITY: buckets_module.Buckets(limits.mesh_identity_per_second, limits.mesh_identity_burst),
        }
        self._by_source = {
            flow.SERVICE_ACCOUNT: buckets_module.Buckets(
                limits.service_account_per_second, limits.service_account_burst, _ACCOUNT_SOURCES
            ),
            flow.JOIN: buckets_module.Buckets(limits.join_per_second, limits.join_burst),
        }
        self._callers: dict[tuple[str, tuple[str, ...]], str] = {}
        self._node_sent = buckets_module.Buckets(limits.node_sent_bytes_per_second, limits.node_sent_bytes_burst)
        self._node_added = buckets_module.Buckets(limits.node_added_bytes_per_second, limits.node_added_bytes_burst)
        self._renewal_sent = buckets_module.Buckets(
            limits.renewal_sent_bytes_per_second, limits.renewal_sent_bytes_burst
        )
        self._renewal_added = buckets_module.Buckets(
            limits.renewal_added_bytes_per_second, limits.renewal_added_bytes_burst
        )
        self._join_sent = buckets_module.Buckets(limits.join_sent_bytes_per_second, limits.join_sent_bytes_burst)
        self._joins_sent = buckets_module.Buckets(limits.joins_sent_bytes_per_second, limits.joins_sent_bytes_burst)
        self._token_added = buckets_module.Buckets(limits.token_added_bytes_per_second, limits.token_added_bytes_burst)
        self._joins_added = buckets_module.Buckets(limits.joins_added_bytes_per_second, limits.joins_added_bytes_burst)

        self._shared = (
            *(self._strangers, self._failures, self._probes, self._joins),
            *(*self._by_name.values(), *self._by_source.values()),
            *(self._node_sent, self._node_added, self._renewal_sent, self._renewal_added),
            *(self._join_sent, self._joins_sent, self._token_added, self._joins_added),
        )

    def share(self, servers: int) -> None:
        """So many servers count by these budgets together."""
        # 10. each has its share
        for each in self._shared:
            each.share(servers)

    def wait_of_stranger(self, source: str, target: str, now: float) -> float:
        """Count a request without any credential; `target` is its path, perhaps with a query."""
        # 1. by source, and health paths apart
        if self._lifted:
            return 0.0
        probe = flow.of_path(flow.ANONYMOUS, target) == flow.HEALTH
        return (self._probes if probe else self._strangers).wait(networks.neighbourhood(source), now)

    def wait_of_refused_source(self, source: str, now: float) -> float:
        """How long a source must wait whose refused credentials have used up its budget; it takes nothing."""
        return 0.0 if self._lifted else self._failures.look(networks.neighbourhood(source), now)

    def wait_after_refusal(self, source: str, now: float) -> float:
        """Count a request whose credential was refused."""
        # 1. by source
        return 0.0 if self._lifted else self._failures.wait(networks.neighbourhood(source), now)

    def wait_of_user(self, user: identity.User, info: request.RequestInfo, source: str, now: float) -> float:
        """Count a request of an authenticated user. Strangers have been counted already: see `wait_of_stranger`."""
        if self._lifted:
            return 0.0
        flow_name = self.flow(user, info)
        # 2. users, nodes and renewals by name
        by_name = self._by_name.get(flow_name)
        if by_name is not None:
            return by_name.wait(user.name, now)
        # 3. service accounts, and 4. joins, by name and source
        by_source = self._by_source.get(flow_name)
        if by_source is None:
            return 0.0
        key = (user.name, networks.neighbourhood(source))
        seconds = by_source.wait(key, now)
        # 4. and all joins together
        if seconds == 0.0 and flow_name == flow.JOIN:
            seconds = self._joins.wait(flow.JOIN, now)
            # 6. what is refused costs nothing
            if seconds > 0.0:
                by_source.give_back(key)
        return seconds

    def charge(self, user: identity.User, info: request.RequestInfo, source: str, now: float) -> Charge | None:
        """What a request that `wait_of_user` has let pass will pay in bytes; None for those who have no such budget."""
        if self._lifted:
            return None
        flow_name, name = self.flow(user, info), user.name
        if flow_name == flow.NODE:
            return Charge(
                ((self._node_sent, name, "one node may send or write"),),
                ((self._node_added, name, "one node may add to the store"),),
                now,
            )
        if flow_name == flow.RENEWAL:
            return Charge(
                ((self._renewal_sent, name, "one node may send for its certificates"),),
                ((self._renewal_added, name, "one node's certificate requests may add to the store"),),
                now,
            )
        if flow_name != flow.JOIN:
            return None
        key = (name, networks.neighbourhood(source))
        return Charge(
            (
                (self._join_sent, key, "one machine may send with a bootstrap token"),
                (self._joins_sent, flow.JOIN, "all machines that join may send"),
            ),
            (
                (self._token_added, name, "one bootstrap token may add to the store"),
                (self._joins_added, flow.JOIN, "all bootstrap tokens may add to the store"),
            ),
            now,
        )

    def flow(self, user: identity.User, info: request.RequestInfo) -> str:
        """The name of the budget that a request falls under."""
        key = (user.name, user.groups)
        caller = self._callers.get(key)
        if caller is None:
            if len(self._callers) >= _CALLERS:
                self._callers.clear()
            caller = self._callers[key] = flow.of_caller(*key)
        if info.is_resource:
            return flow.of_resource(caller, info.verb, info.group, info.plural, info.subresource)
        return flow.of_path(caller, info.path)
