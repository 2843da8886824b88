# SPDX-License-Identifier: Apache-2.0
"""Who may call the workload, as Envoy is told of it: the routes of all its ports, made of deny list, policy and what holds before either is known.

The routes travel by RDS, and so what is judged reaches connections that are open. Whether bytes without a name are passed on is the listener's, which
asks here (`tcp`).

| what is known | who may call |
|---|---|
| nothing | everybody, where the default policy says so; else nobody, as below |
| the policy service has answered for the port | everybody, where it says so; else nobody, since it might be somebody on the deny list. Where there is no channel to agents, whom it names |
| the control plane has told this agent | whom the policies name, and nobody on the deny list |

1. From the first moment there are routes: there is no time without a policy. What is known later never counts less than what is known before, and what
   was told last holds while nobody answers.
2. Anchors are believed first, then Envoy is given routes and anchors, and listeners by who asks here. A version is acknowledged when Envoy has taken them all; one
   whose anchors cannot be believed is followed otherwise, and not acknowledged.
3. The routes of a port are sent where they change, and not otherwise. They are put together in a thread: for 1,000 denied names that takes 4 ms, for 10,000
   rows of a policy 300.
4. When the own certificate ends, requests over TLS are refused, also on connections that are open.
5. Probe paths are the policy service's to say, whoever says the rest.
6. The application is told who calls when it is known who is denied, and not before: it might let in a denied one by that.
7. It is ready (`why_not`) when everybody has spoken who is to, policy service and control plane, and Envoy was told: else those who call a
   workload that has just become ready would be refused, or come without their names.

| who | holding | tries | stopped by | shown in tests/scenarios/test_proxy_policy.py |
|---|---|---|---|---|
| a client that no policy lets in | a workload that has just started | call before the policy is known | 1 | test_before_a_policy_is_known_nobody_is_let_in_where_the_default_says_so |
| who took over a workload | a connection that is open | go on after its name, its key or its serial number is revoked | 2 | test_a_revocation_reaches_an_open_connection |
| … | an agent that has just started | be let in before the deny list is known | 1 | test_an_agent_that_was_killed_comes_back_without_a_hole |
| … | the network between agent and control plane | have policy and revocation forgotten | 1 | test_while_the_channel_is_down_the_last_policy_holds |
| a client without an identity | … | get past requireIdentity | 1 | test_an_identity_that_is_required_is_required_on_an_open_connection |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import structlog

from handfast import errors
from handfast.proxy import announcements, port_answers
from handfast.proxy import trust as trust_module
from handfast.rules.envoy import inbound_routes, judging, outbound, outbound_routes, ports, resources, tls
from handfast.rules.mesh import announced, enforcement
from handfast.runtime import aside, tasks
from handfast.wire import ads

_OWNER: Final = "judgements"
_log = structlog.get_logger("handfast.proxy")
_Rows = tuple[judging.PortJudgement, ...]
# What the routes of a port were made of.
_Facts = tuple[_Rows, judging.Deny, bool, bool]
_Documents = list[tuple[str, bytes]]


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """What is known at one moment, and how routes are made of it; a thread may have it."""

    default: str
    latest: announced.Announced | None
    answers: Mapping[int, judging.PortJudgement]
    has_channel: bool
    is_over: bool
    identity_headers: bool

    def facts(self, port: ports.Port) -> _Facts:
        latest = self.latest
        deny = judging.NOBODY_DENIED if latest is None else judging.Deny(latest.denied_names, latest.denied_digests)
        compiled = None if latest is None else latest.compiled
        awaits = self.has_channel and latest is None
        rows = enforcement.rows(port.number, self.default, compiled, self.answers, awaits_denials=awaits)
        # 6. told when the denied are known
        return rows, deny, self.is_over, self.identity_headers and not awaits

    def changed(self, port: ports.Port, before: _Facts | None) -> tuple[_Facts, _Documents]:
        """The facts of now, and the routes where they differ from those before (3)."""
        facts = self.facts(port)
        if facts == before:
            return facts, []
        rows, deny, is_over, headers = facts
        documents = inbound_routes.documents(port, rows, deny, identity_headers=headers, is_over=is_over)
        return facts, [(document["name"], ads.pack(resources.Kind.ROUTES, document)) for document in documents]


class Judgements:
    """Who may call, for each of the ports; one of number 0 stands for all. Without `announcing` and `answers` the default holds for ever."""

    def __init__(
        self,
        sent: ads.Ads,
        served: Sequence[ports.Port],
        *,
        default: str,
        identity_headers: bool = False,
        announcing: announcements.Announcements | None = None,
        answers: port_answers.PortAnswers | None = None,
        trust: trust_module.Trust | None = None,
    ) -> None:
        self._ads = sent
        self._ports = tuple(served)
        self._default = default
        self._identity_headers = identity_headers
        self._announcing = announcing
        self._answers = answers
        self._trust = trust
        self._certified = False
        self._is_over = False
        # 7. with nobody who is to speak, all is known
        self._is_told = announcing is None and answers is None
        # The version whose anchors are believed.
        self._believed = 0
        self._made: dict[int, _Facts] = {}
        self._dirty = asyncio.Event()
        self._subscribers: list[Callable[[], None]] = []
        self._waiting: asyncio.Task[None] | None = None

    # What others ask.

    def subscribe(self, notify: Callable[[], None]) -> None:
        """Call `notify` when who may call has changed: `tcp` and `needs_outbound` may say something else."""
        self._subscribers.append(notify)

    def rows(self, port: ports.Port) -> Sequence[judging.PortJudgement]:
        """What Envoy was told last of a port."""
        return self._made[port.number][0]

    def tcp(self, number: int) -> bool:
        """Whether connections to a port of its own may be passed on of which nothing is known, by what Envoy was told last."""
        (row,) = self._made[number][0]
        return row.tcp

    def why_not(self) -> str | None:
        """What is not known of who may call, or was not told to Envoy (7); None from when all is."""
        return self._unknown() or (None if self._is_told else "who may call is not with Envoy")

    @property
    def needs_outbound(self) -> bool:
        """Whether the workload talks to servers with an identity only."""
        compiled = None if self._latest is None else self._latest.compiled
        return compiled is not None and compiled.needs_outbound

    # As a part of the agent.

    def begin(self) -> None:
        """The first routes (1)."""
        known = self._known()
        for port in self._ports:
            self._place(port, *known.changed(port, None))

    def show(self, *, certified: bool, longest: int) -> None:  # noqa: ARG002 - connections last as the listener says
        """The own certificate is in force, or is not."""
        # 4. over, where there was one
        is_over = not certified and (self._certified or self._is_over)
        self._certified = certified
        if is_over != self._is_over:
            self._is_over = is_over
            self._dirty.set()

    def keys(self) -> Sequence[ads.Key]:
        """What Envoy has to have acknowledged."""
        read = [port for port in self._ports if not port.opaque]
        proved = [port.routes for port in read if self._certified]
        return [(resources.Kind.ROUTES, name) for name in (*(port.plaintext_routes for port in read), *proved)]

    async def run(self) -> None:
        """Keep the routes as they have to be, until cancelled."""
        thread = aside.Aside(_OWNER)
        try:
            async with tasks.Group(_OWNER) as group:
                if self._answers is not None:
                    self._answers.subscribe(self._dirty.set)
                    group.start(self._answers.run(), name="policy-service")
                if self._announcing is not None:
                    group.start(self._announcing.run(), name="announcements")
                    group.start(self._follow(self._announcing), name="follow")
                group.start(self._keep(thread, group), name="routes")
                await group.wait()
        finally:
            thread.close()

    # What becomes of it.

    async def _follow(self, announcing: announcements.Announcements) -> None:
        async for _ in announcing.follow():
            self._dirty.set()

    async def _keep(self, thread: aside.Aside, group: tasks.Group) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            latest, is_all = self._latest, self._unknown() is None
            # 2. believed first
            is_believed = latest is None or self._learn(latest)
            await self._put(thread)
            for notify in self._subscribers:
                notify()
            # 7. everybody has spoken, and Envoy is told
            self._is_told = self._is_told or is_all
            if self._announcing is not None and latest is not None and is_believed:
                if self._waiting is not None:
                    self._waiting.cancel()
                self._waiting = group.start(self._acknowledge(self._announcing, latest.version), name="acknowledged")

    async def _put(self, thread: aside.Aside) -> None:
        known = self._known()
        for port in self._ports:
            # 3. in a thread
            self._place(port, *await thread.run(_OWNER, known.changed, port, self._made.get(port.number)))

    def _place(self, port: ports.Port, facts: _Facts, documents: _Documents) -> None:
        for name, octets in documents:
            self._ads.place(resources.Kind.ROUTES, name, octets)
        self._made[port.number] = facts

    def _learn(self, latest: announced.Announced) -> bool:
        """Believe the anchors; whether that could be done."""
        if self._trust is None or latest.version == self._believed:
            return True
        try:
            if self._trust.learn(latest.anchors_pem):
                # 2. put here: the agent, which follows the anchors, may come to it later than the acknowledgement
                anchors = tls.anchors(self._trust.current.to_pem())
                self._ads.put(resources.Kind.SECRET, tls.ANCHORS, anchors)
        except errors.HandfastError as error:
            _log.error("trust anchors are not believed", reason=error.reason, error=error.message)
            return False
        self._believed = latest.version
        return True

    async def _acknowledge(self, announcing: announcements.Announcements, version: int) -> None:
        # 2. by Envoy, first
        names = [name for port in self._ports for name in (port.routes, port.plaintext_routes)]
        routes = [(resources.Kind.ROUTES, name) for name in (*names, outbound_routes.OUTBOUND)]
        listeners = [
            (resources.Kind.LISTENER, name) for name in (*(port.listener for port in self._ports), outbound.NAME)
        ]
        await self._ads.settled([*routes, *listeners, (resources.Kind.SECRET, tls.ANCHORS)])
        announcing.acknowledge(version)

    # What holds.

    def _unknown(self) -> str | None:
        sources = (self._announcing, self._answers)
        return next((why for source in sources if source is not None and (why := source.why_not)), None)

    @property
    def _latest(self) -> announced.Announced | None:
        return None if self._announcing is None else self._announcing.latest

    def _known(self) -> _Known:
        answers = {} if self._answers is None else dict(self._answers.rows)
        return _Known(
            default=self._default,
            latest=self._latest,
            answers=answers,
            has_channel=self._announcing is not None,
            is_over=self._is_over,
            identity_headers=self._identity_headers,
        )
