# SPDX-License-Identifier: Apache-2.0
"""How much anyone may ask, how much joins and nodes may send and have kept, and the numbers that bound a connection.

Two stations use them: new connections before TLS costs anything (`gate`), and requests (`pipeline`). They bound what a
flood costs; they are not an access rule. Which budget a request falls under is `rules.flow`'s to say:

1. Strangers, and those whose credential is refused, share the budget of their source; health paths are counted apart.
2. Users are counted by name, nodes too, and a node's renewals apart from the rest of what it asks.
3. Service accounts are counted by name and source: the Pods of a DaemonSet share a name, and start together.
4. Joins are counted by token and source, and all of them together: one token may bring a thousand machines, and a
   flood of joins takes nothing from anyone else.
5. A source is what one machine can take addresses from: an IPv4 address, or the /64 of an IPv6 one.
6. A request that is over its rate costs nothing from any budget. One that is over a budget in bytes has been a
   request, and costs that: it was looked at, up to the point where its size was known. What was refused it costs not.
7. What a join or a node *sends* has a budget in bytes beside that of requests: the body, or what is written to the
   store for it where that is more, since a short patch can write a long object.
8. What it *adds* to the store has another, which comes back slowly: by token and of all joins together, by node, and
   apart for a node's certificates.
9. What is more than a budget ever holds is refused with 413, since it would be 429 for ever.

Users and service accounts have no budget in bytes: whoever may create objects may fill the store by right.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/test_limits.py |
|---|---|---|---|---|
| a machine | a bootstrap token | flood the server with joins, so that nodes lose their certificates | 2, 4 | test_a_flood_of_joins_takes_nothing_from_renewals |
| many machines | one stolen bootstrap token | the same from many addresses | 4: the ceiling of all joins | test_joins_have_a_ceiling |
| a stranger | a /64 of addresses | be somebody else for each request | 5 | test_an_ipv6_network_is_one_source |
| a stranger | guesses of a token | guess without end | 1 | test_refused_credentials_count_for_their_source |
| a machine | a bootstrap token | fill the store with long requests | 7, 8 | test_a_token_cannot_fill_the_store |
| many machines | several stolen tokens | the same together | 8: the ceiling of all joins | test_all_tokens_together_have_a_ceiling |
| a node, taken over | its certificate | fill the store with Events | 8 | test_a_node_cannot_fill_the_store |
| … | … | write much with little: short patches of a long object, or `copy` in a JSON patch | 7, 8 count what is stored | test_what_is_written_counts_where_it_is_more_than_the_body |
| a Pod, taken over | a service account's token | starve the Pods of that account elsewhere | 3 | test_service_accounts_are_counted_by_source |
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from handfast.api import status
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
    # The first one without a client certificate: silence after TLS must not fill a source's places at its rates.
    first_head_seconds: float = 5.0
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
    # In bytes: what is sent or written, and what is added to the store.
    node_sent_bytes_per_second: float = 2 << 20
    node_sent_bytes_burst: int = 32 << 20
    node_added_bytes_per_second: float = 16 << 10
    node_added_bytes_burst: int = 16 << 20
    renewal_sent_bytes_per_second: float = 8 << 10
    renewal_sent_bytes_burst: int = 512 << 10
    renewal_added_bytes_per_second: float = 256
    renewal_added_bytes_burst: int = 512 << 10
    join_sent_bytes_per_second: float = 128 << 10
    join_sent_bytes_burst: int = 8 << 20
    joins_sent_bytes_per_second: float = 1 << 20
    joins_sent_bytes_burst: int = 64 << 20
    token_added_bytes_per_second: float = 512
    token_added_bytes_burst: int = 32 << 20
    joins_added_bytes_per_second: float = 1 << 10
    joins_added_bytes_burst: int = 128 << 20
    # A watcher further behind than this is dropped, never waited for.
    watch_buffer_bytes: int = 4 << 20
    lifted: bool = False


class Buckets:
    """A token bucket for each source, or whatever else is counted by.

    The least recently seen are forgotten, so memory is bounded.
    """

    def __init__(self, rate: float, burst: int, sources: int = _SOURCES) -> None:
        self.rate = rate
        self.burst = float(burst)
        self._sources = sources
        self._state: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def wait(self, source: Hashable, now: float, amount: float = 1.0) -> float:
        """0.0 if so much more is allowed now (and takes it), else the seconds until it is."""
        tokens, then = self._state.pop(source, (self.burst, now))
        tokens = min(self.burst, tokens + (now - then) * self.rate)
        allowed = tokens >= amount
        self._state[source] = (tokens - amount if allowed else tokens, now)  # 6. a refusal takes nothing
        if len(self._state) > self._sources:
            self._state.popitem(last=False)
        return 0.0 if allowed else (amount - tokens) / self.rate

    def look(self, source: Hashable, now: float) -> float:
        """As `wait`, and nothing is taken."""
        state = self._state.get(source)
        if state is None:
            return 0.0
        tokens = min(self.burst, state[0] + (now - state[1]) * self.rate)
        return 0.0 if tokens >= 1.0 else (1.0 - tokens) / self.rate

    def give_back(self, source: Hashable, amount: float = 1.0) -> None:
        """Undo a `wait` that was allowed: the request was refused for another reason."""
        state = self._state.get(source)
        # Whoever was forgotten meanwhile has a full bucket.
        if state is not None:
            self._state[source] = (min(self.burst, state[0] + amount), state[1])


# One bucket that a request takes from: whose it is, and what a refusal says is counted there. Plain tuples, because two to
# four are made for each write of a node or a join.
Budget = tuple[Buckets, Hashable, str]


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
        for place, (buckets, key, what) in enumerate(budgets):
            # 9. never
            refusal = _never(what, buckets, before + size) if before + size > buckets.burst else None
            if refusal is None:
                seconds = buckets.wait(key, self._now, size)
                if seconds == 0.0:
                    continue
                refusal = _not_now(what, buckets, seconds)
            # 6. what is refused is not paid for
            for taken, whose, _ in budgets[:place]:
                taken.give_back(whose, size)
            raise refusal


def _never(what: str, buckets: Buckets, size: int) -> status.StatusError:
    text = f"Request entity too large: {size} bytes; limit is {shown(buckets.burst)}, all that {what} at once"
    return status.StatusError("RequestEntityTooLarge", text)


def _not_now(what: str, buckets: Buckets, seconds: float) -> status.StatusError:
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
        self._node_sent = Buckets(limits.node_sent_bytes_per_second, limits.node_sent_bytes_burst)
        self._node_added = Buckets(limits.node_added_bytes_per_second, limits.node_added_bytes_burst)
        self._renewal_sent = Buckets(limits.renewal_sent_bytes_per_second, limits.renewal_sent_bytes_burst)
        self._renewal_added = Buckets(limits.renewal_added_bytes_per_second, limits.renewal_added_bytes_burst)
        self._join_sent = Buckets(limits.join_sent_bytes_per_second, limits.join_sent_bytes_burst)
        self._joins_sent = Buckets(limits.joins_sent_bytes_per_second, limits.joins_sent_bytes_burst)
        self._token_added = Buckets(limits.token_added_bytes_per_second, limits.token_added_bytes_burst)
        self._joins_added = Buckets(limits.joins_added_bytes_per_second, limits.joins_added_bytes_burst)

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

    def charge(self, user: identity.User, info: request.RequestInfo, source: str, now: float) -> Charge | None:
        """What a request that `wait` has let pass will pay in bytes; None for those who have no such budget."""
        if self._lifted:
            return None
        flow_, name = self.flow(user, info), user.name
        if flow_ == flow.NODE:
            return Charge(
                ((self._node_sent, name, "one node may send or write"),),
                ((self._node_added, name, "one node may add to the store"),),
                now,
            )
        if flow_ == flow.RENEWAL:
            return Charge(
                ((self._renewal_sent, name, "one node may send for its certificates"),),
                ((self._renewal_added, name, "one node's certificate requests may add to the store"),),
                now,
            )
        if flow_ != flow.JOIN:
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
