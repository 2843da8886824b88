# SPDX-License-Identifier: Apache-2.0
"""How much anyone may ask: token buckets per source and per user, and the numbers that bound a connection.

Two stations use them: new connections before TLS costs anything (`gate`), and requests (`pipeline`). They bound what a
flood costs; they are not an access rule. Which budget a request falls under is `rules.flow`'s to say:

1. Strangers, and those whose credential is refused, share the budget of their source; health paths are counted apart.
2. Users are counted by name, nodes too, and a node's renewals apart from the rest of what it asks.
3. Service accounts are counted by name and source: the Pods of a DaemonSet share a name, and start together.
4. Joins are counted by token and source, and all of them together: one token may bring a thousand machines, and a
   flood of joins takes nothing from anyone else.
5. A source is what one machine can take addresses from: an IPv4 address, or the /64 of an IPv6 one.
6. A request that gets 429 costs nothing from any budget.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/test_limits.py |
|---|---|---|---|---|
| a machine | a bootstrap token | flood the server with joins, so that nodes lose their certificates | 2, 4 | test_a_flood_of_joins_takes_nothing_from_renewals |
| many machines | one stolen bootstrap token | the same from many addresses | 4: the ceiling of all joins | test_joins_have_a_ceiling |
| a stranger | a /64 of addresses | be somebody else for each request | 5 | test_an_ipv6_network_is_one_source |
| a stranger | guesses of a token | guess without end | 1 | test_refused_credentials_count_for_their_source |
| a Pod, taken over | a service account's token | starve the Pods of that account elsewhere | 3 | test_service_accounts_are_counted_by_source |
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

from handfast.apiserver import identity, request
from handfast.rules import flow, networks

# Callers whose flow is remembered.
_CALLERS = 10_000
# Buckets of one kind; service accounts have one for each source.
_SOURCES = 10_000
_ACCOUNT_SOURCES = 50_000


@dataclass(frozen=True, slots=True)
class Limits:
    """The defaults are written down in docs/reference/limits.md."""

    connections: int = 8192
    connections_per_source: int = 4096
    # A connection that sends nothing at all is closed after this long.
    silence_seconds: float = 3.0
    handshakes_in_flight: int = 64
    handshakes_per_source: int = 32
    # Begun in one round of the event loop.
    handshakes_per_round: int = 4
    handshake_seconds: float = 5.0
    # A request head (or the silence before the first one) may take this long: slow-loris clients end here.
    head_seconds: float = 20.0
    body_seconds: float = 30.0
    # Between requests; without a client certificate much shorter, or strangers could keep every connection.
    idle_seconds: float = 3630.0
    anonymous_idle_seconds: float = 15.0
    # A client that does not read its answer is given up after this long.
    write_seconds: float = 30.0
    # A write altogether, with everyone it has to ask: longer than the longest deadline of a webhook.
    request_seconds: float = 60.0
    body_bytes: int = 3 << 20
    # One line of a head, and all of it.
    header_bytes: int = 32 << 10
    head_bytes: int = 64 << 10
    # Bodies on their way that did not come with their head, of one user and of all.
    bodies_per_user_bytes: int = 32 << 20
    bodies_bytes: int = 256 << 20
    # Answers that were written and have not been read, of one user and of all.
    unread_per_user_bytes: int = 64 << 20
    unread_bytes: int = 256 << 20
    connections_per_second: float = 100.0
    connections_burst: int = 400
    # More, for a source from which somebody has shown a good credential in the last while.
    proven_per_second: float = 300.0
    proven_burst: int = 1200
    # Over these it waits: no longer than this, which is less than clients give a handshake (10 s), and so many in all.
    waiting_seconds: float = 5.0
    connections_waiting: int = 4096
    anonymous_per_second: float = 50.0
    anonymous_burst: int = 200
    user_per_second: float = 400.0
    user_burst: int = 1600
    service_account_per_second: float = 200.0
    service_account_burst: int = 800
    node_per_second: float = 120.0
    node_burst: int = 480
    renewal_per_second: float = 5.0
    renewal_burst: int = 20
    join_per_second: float = 50.0
    join_burst: int = 200
    joins_per_second: float = 300.0
    joins_burst: int = 3000
    # A watcher further behind than this is dropped, never waited for.
    watch_buffer_bytes: int = 4 << 20
    lifted: bool = False


class Buckets:
    """A token bucket for each source, or whatever else is counted by.

    The least recently seen are forgotten, so memory is bounded.
    """

    def __init__(self, rate: float, burst: int, sources: int = _SOURCES) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._sources = sources
        self._state: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def wait(self, source: Hashable, now: float) -> float:
        """0.0 if one more is allowed now (and takes it), else the seconds until one is."""
        tokens, then = self._state.pop(source, (self._burst, now))
        tokens = min(self._burst, tokens + (now - then) * self._rate)
        allowed = tokens >= 1.0
        self._state[source] = (tokens - 1.0 if allowed else tokens, now)  # 6.
        if len(self._state) > self._sources:
            self._state.popitem(last=False)
        return 0.0 if allowed else (1.0 - tokens) / self._rate

    def look(self, source: Hashable, now: float) -> float:
        """As `wait`, and nothing is taken."""
        state = self._state.get(source)
        if state is None:
            return 0.0
        tokens = min(self._burst, state[0] + (now - state[1]) * self._rate)
        return 0.0 if tokens >= 1.0 else (1.0 - tokens) / self._rate

    def give_back(self, source: Hashable) -> None:
        """Undo a `wait` that was allowed, unless the source was forgotten meanwhile: then there is nothing to undo."""
        state = self._state.get(source)
        if state is not None:
            self._state[source] = (min(self._burst, state[0] + 1.0), state[1])


class Flows:
    """The budgets of all requests. Every answer is a wait in seconds: 0.0 means go on."""

    def __init__(self, limits: Limits) -> None:
        self._lifted = limits.lifted
        self._strangers = Buckets(limits.anonymous_per_second, limits.anonymous_burst)
        # Of their own: whoever only asks without a credential must not keep others behind the same address from joining.
        self._failures = Buckets(limits.anonymous_per_second, limits.anonymous_burst)
        self._probes = Buckets(limits.anonymous_per_second, limits.anonymous_burst)
        self._joins = Buckets(limits.joins_per_second, limits.joins_burst)
        self._by_name = {
            flow.USER: Buckets(limits.user_per_second, limits.user_burst),
            flow.NODE: Buckets(limits.node_per_second, limits.node_burst),
            flow.RENEWAL: Buckets(limits.renewal_per_second, limits.renewal_burst),
        }
        self._by_source = {
            flow.SERVICE_ACCOUNT: Buckets(
                limits.service_account_per_second, limits.service_account_burst, _ACCOUNT_SOURCES
            ),
            flow.JOIN: Buckets(limits.join_per_second, limits.join_burst),
        }
        self._callers: dict[tuple[str, tuple[str, ...]], str] = {}

    def stranger(self, source: str, target: str, now: float) -> float:
        """A request without any credential; `target` is its path, perhaps with a query."""
        # 1.
        if self._lifted:
            return 0.0
        probe = flow.of_path(flow.ANONYMOUS, target) == flow.HEALTH
        return (self._probes if probe else self._strangers).wait(networks.neighbourhood(source), now)

    def worn_out(self, source: str, now: float) -> float:
        """How long a source must wait whose refused credentials have used up its budget; it takes nothing."""
        return 0.0 if self._lifted else self._failures.look(networks.neighbourhood(source), now)

    def failed(self, source: str, now: float) -> float:
        """A request whose credential was refused."""
        # 1.
        return 0.0 if self._lifted else self._failures.wait(networks.neighbourhood(source), now)

    def wait(self, user: identity.User, info: request.RequestInfo, source: str, now: float) -> float:
        """A request of somebody known. Strangers have been counted already: see `stranger`."""
        if self._lifted:
            return 0.0
        flow_ = self.flow(user, info)
        # 2.
        by_name = self._by_name.get(flow_)
        if by_name is not None:
            return by_name.wait(user.name, now)
        # 3. 4. 5.
        by_source = self._by_source.get(flow_)
        if by_source is None:
            return 0.0
        key = (user.name, networks.neighbourhood(source))
        seconds = by_source.wait(key, now)
        # 4.
        if seconds == 0.0 and flow_ == flow.JOIN:
            seconds = self._joins.wait(flow.JOIN, now)
            if seconds > 0.0:  # 6.
                by_source.give_back(key)
        return seconds

    def flow(self, user: identity.User, info: request.RequestInfo) -> str:
        """The name of the budget."""
        key = (user.name, user.groups)
        caller = self._callers.get(key)
        if caller is None:
            if len(self._callers) >= _CALLERS:
                self._callers.clear()
            caller = self._callers[key] = flow.of_caller(*key)
        if info.is_resource:
            return flow.of_resource(caller, info.verb, info.group, info.plural, info.subresource)
        return flow.of_path(caller, info.path)
