# SPDX-License-Identifier: Apache-2.0
"""The agent's side of `Agent/Watch`: trust anchors, deny list and policy come down, what it works by and what it sees goes up. It enforces nothing.

Who follows it (`follow`) has Envoy work by what came, and says when that is so (`acknowledge`).

1. The channel is TLS wherever it is. The server proves its name by the anchors of the moment, and the own certificate is shown, while it is in force.
2. With each new certificate it connects again: the stream of the old one would end with it. It tries for ever, after a delay that grows.
3. What comes is judged before it counts (`rules.mesh.announced`). What is refused changes nothing; it is logged with its reason, and counted.
4. While nothing comes, what came last holds, whatever the reason: a policy has no end.
5. The first report says which version holds here. A version is acknowledged when Envoy has acknowledged it, and not before.
6. A report goes up when it says something new, and no faster than they are read.
7. While the root of the mesh is replaced it is told who is to have signed the own certificate, which is renewed for that (`credentials`).

| who | holding | tries | stopped by | shown in tests/unit/proxy/test_announcements.py |
|---|---|---|---|---|
| a stranger | the address of the channel | tell an agent whom to let in | 1 | test_a_server_of_another_name_or_authority_is_not_listened_to |
| who cuts the connection | the network | have a policy or a revocation forgotten | 4 | test_what_came_last_holds_while_nobody_answers |
| a confused replica | the name of the control plane | open what is closed, by nonsense | 3 | test_nonsense_is_refused_by_name_and_changes_nothing |
| an agent behind its Envoy | a version that Envoy has not taken | look up to date | 5 | test_a_version_is_acknowledged_when_it_is_said_so |
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import structlog

from handfast import errors
from handfast.pki import pairs
from handfast.proxy import credentials
from handfast.proxy import trust as trust_module
from handfast.rules.mesh import announced, policy, proxy_clients, reports
from handfast.runtime import addresses, aside, backoff, followers, tasks
from handfast.runtime import clock as clocks
from handfast.wire import agent_messages, channel

WATCH: Final = f"/{agent_messages.SERVICE}/Watch"
_OWNER: Final = "announcements"
_SCHEDULE: Final = backoff.Schedule(initial=0.2, cap=15.0)
# 6. half a second for each is what the server reads
_REPORT_SECONDS: Final = 0.5
_LOOK_SECONDS: Final = 10.0
_log = structlog.get_logger("handfast.proxy")


class Announcements:
    """What the control plane tells this workload's agent. `edges` is called for each report; `pod` is namespace and name."""

    def __init__(
        self,
        client: proxy_clients.Client,
        own: credentials.Credentials,
        trust: trust_module.Trust,
        pod: tuple[str, str],
        clock: clocks.Clock,
    ) -> None:
        self._client = client
        self._own = own
        self._trust = trust
        self._pod = pod
        self._clock = clock
        self._followers = followers.Followers()
        self._acknowledged = 0
        # What the next version has to be larger than.
        self._before = 0
        self._news = asyncio.Event()
        self._thread = aside.Aside(_OWNER)
        self.latest: announced.Announced | None = None
        self.edges: Callable[[], tuple[reports.Edge, ...]] = tuple
        self.connected = False
        self.last_error: str | None = None
        # How often what came was refused, by reason.
        self.refusals: Counter[str] = Counter()

    async def follow(self) -> AsyncIterator[announced.Announced]:
        """What holds now, if anything came, and again after each change; only the last of several that come quickly."""
        with self._followers.one() as changed:
            while True:
                changed.clear()
                if self.latest is not None:
                    yield self.latest
                await changed.wait()

    def acknowledge(self, version: int) -> None:
        """Envoy works by this version (5)."""
        self._acknowledged = max(self._acknowledged, version)
        self._news.set()

    def hurry(self) -> None:
        """There is an edge that nobody was told of (6)."""
        self._news.set()

    @property
    def acknowledged(self) -> int:
        """The version that Envoy works by."""
        return self._acknowledged

    @property
    def why_not(self) -> str | None:
        """Why nothing is known of who is denied; None once something came."""
        if self.latest is not None:
            return None
        return "the control plane has not said who is denied" + (f": {self.last_error}" if self.last_error else "")

    async def run(self) -> None:
        """Until cancelled."""
        try:
            await self._run()
        finally:
            self._thread.close()

    async def _run(self) -> None:
        session: asyncio.Task[None] | None = None
        async with tasks.Group("announcements") as group:
            async for standing in self._own.follow():
                if session is not None:
                    session.cancel()
                    await asyncio.wait([session])
                session = None
                # 1. nothing that is over is shown; 2. again with each new one
                if standing.pair is not None:
                    session = group.start(self._keep(standing.pair), name="session")

    async def _keep(self, pair: pairs.Pair) -> None:
        delays = backoff.Backoff(_SCHEDULE)
        while True:
            before = self.latest
            try:
                await self._session(pair)
                error = "the stream ended"
            except errors.HandfastError as failed:
                error = failed.message
            except OSError as failed:
                error = (failed.strerror or "it failed").lower()
            finally:
                self.connected = False
            if error != self.last_error:
                _log.warning("nothing is heard from the control plane", error=error)
            self.last_error = error
            if self.latest is not before:
                delays.reset()
            # 2. for ever; 4. what came last holds
            await self._clock.sleep(next(delays))

    async def _session(self, pair: pairs.Pair) -> None:
        # 5. versions grow from the one that the first report says, whichever replica sends them
        self._before = self._acknowledged
        async with channel.opened(
            addresses.parse(self._client.address),
            # 1. TLS, and the name is proved
            anchors=self._trust.current,
            server_name=self._client.name or "",
            clock=self._clock,
            pair=pair,
        ) as opened:
            async for message in opened.duplex(WATCH, self._reports(pair), agent_messages.Update):
                self.connected, self.last_error = True, None
                await self._take(message)

    async def _take(self, message: Any) -> None:
        try:
            # 3. judged before it counts, in a thread: a list may be long
            latest = await self._thread.run(_OWNER, read, message, self._before)
        except errors.Refused as refused:
            self.refusals[refused.reason] += 1
            _log.error("an announcement is refused", reason=refused.reason, error=refused.message)
            return
        self.latest, self._before = latest, latest.version
        # 7. renewed soon, where another has signed
        self._own.prefer(latest.signer)
        _log.info(
            "told by the control plane",
            version=latest.version,
            names=len(latest.denied_names),
            certificates=len(latest.denied_digests),
        )
        self._followers.tell()

    async def _reports(self, pair: pairs.Pair) -> AsyncIterator[Any]:
        last: bytes | None = None
        while True:
            self._news.clear()
            report = self._report(pair)
            # 5. the first one always; 6. then what is new
            if (octets := report.SerializeToString(deterministic=True)) != last:
                last = octets
                yield report
                await self._clock.sleep(_REPORT_SECONDS)
            await tasks.wait_for_event(self._news, self._clock, _LOOK_SECONDS)

    def _report(self, pair: pairs.Pair) -> Any:
        leaf = pair.leaf
        namespace, name = self._pod
        return agent_messages.Report(
            acknowledged=self._acknowledged,
            certificate={
                "serial": leaf.serial,
                "not_after": {"seconds": int(leaf.not_after.timestamp())},
                "sha256": bytes.fromhex(leaf.fingerprint),
            },
            edges=[agent_messages.edge_document(edge) for edge in self.edges()[: reports.MOST_EDGES]],
            **({"pod": {"namespace": namespace, "name": name}} if namespace and name else {}),
        )


def read(message: Any, before: int) -> announced.Announced:
    """What an Update says, if it can be followed; `before` is the version that holds."""
    return announced.require(
        version=message.version,
        before=before,
        anchors_pem=message.anchors.encode(),
        names=message.deny.names,
        certificates=message.deny.certificates,
        compiled=_compiled(message.policy) if message.HasField("policy") else None,
        signer=message.signer,
    )


def _compiled(message: Any) -> policy.Compiled:
    return policy.Compiled(
        ports=tuple(
            policy.PortRules(
                port=row.port,
                enforced=_rules(row.enforced),
                audited=_rules(row.audited) if row.HasField("audited") else None,
            )
            for row in message.ports
        ),
        needs_outbound=message.needs_outbound,
        would_need_outbound=message.would_need_outbound,
    )


def _rules(message: Any) -> policy.Rules:
    return policy.Rules(
        restricted=message.restricted,
        needs_identity=message.needs_identity,
        permits=tuple(
            policy.Permit(policy=row.policy, row=row.row, identity=row.identity, suffix=row.suffix, anyone=row.anyone)
            for row in message.permits
        ),
    )
