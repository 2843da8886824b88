# SPDX-License-Identifier: Apache-2.0
"""Keeps this machine at the rendering that its Node names: fetches it with the node's own certificate, applies it, reports, looks for drift.

`rules.machine_config.applying` decides what a configuration means for the machine, `configuration_state` changes what lies there. It starts
and stops no service, and never ends the agent: what fails is reported, and tried again.

1. The Node is followed by a watch of its own name. The control plane writes `desiredConfig` there. The agent writes the rest: what this
   machine has (`currentConfig`), how far it is (`state`), why not further (`reason`), and that it follows at all.
2. What a crash cut short is rolled back before anything else. On a machine that came up by Ignition, what Ignition left there is taken
   as the current rendering.
3. Before the first write the state is Working, after the last it is Done. Where only the credential differs, Working is left out: nothing
   restarts, and a write on each of a thousand Nodes costs the control plane as much as half a fetch.
4. A rendering that cannot be applied makes the machine Degraded or Unreconcilable, with one sentence. Nothing of it is written, but for
   what 10 says. It is tried again from time to time, and another rendering at once: so the machine heals by itself.
5. A server that does not answer is asked again; after `PATIENCE` seconds the state is Degraded. If it refuses, the state is Degraded at once.
6. Every `LOOK` seconds, and at the start, what lies there is compared with what should: by stat, then by content. Drift makes the machine
   Degraded, with the paths. Only another rendering overwrites it. When somebody has put it right, the next look finds that.
7. A rendering that somebody took back by hand is not applied again until they say so, or until another one is wanted.
8. While the Node names no rendering, there is nothing to do. The log and `node configuration status` say so at once, and a warning follows
   after `PATIENCE` seconds: a control plane of an older release never names one. The machine itself is well.
9. If this program fails in a way that nobody foresaw, at a configuration or at what lies on the machine, that is Degraded, too: the
   certificate and the Lease of the node matter more.
10. Where something on the machine is in the way of a rendering, its credential files are applied on their own: whoever owns a directory that
    a configuration writes into cannot keep a new credential away. The machine is Degraded all the same.

| who | holding | tries | stopped by | shown in tests/unit/node/test_configuration.py |
|---|---|---|---|---|
| a user of the machine | a directory that a configuration writes into | put a directory in a file's place, so that a revoked credential is not replaced | 10 | test_what_is_in_the_way_of_a_file_keeps_no_credential_away_and_is_told |
| … | … | do so during the change, so that it can be neither done nor taken back | 10 | test_what_comes_in_the_way_during_a_change_keeps_no_credential_away |
"""

from __future__ import annotations

import asyncio
import urllib.parse
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from handfast import errors
from handfast.api import jsonpath, resources
from handfast.client import api, cache, machine_configs, partial, watch
from handfast.client import connection as connections
from handfast.node import configuration_state
from handfast.rules.machine_config import applying, drift, host_paths, names, planned_units
from handfast.runtime import aside, backoff, tasks
from handfast.runtime import clock as clocks

LOOK: Final = 120.0
# While there is drift, so that whoever puts it right need not wait.
LOOK_AGAIN: Final = 10.0
PATIENCE: Final = 60.0
_RETRY: Final = backoff.Schedule(initial=2.0, cap=120.0)
_MAX_REASON: Final = 1024
_NAMED_IN_LOG: Final = 20
_OWNER: Final = "configuration"
# Why a machine is Degraded, where no error says it.
DRIFT: Final = "Drift"
RESTORED_BY_HAND: Final = "RestoredByHand"
# … and why it waits.
NOT_SENT: Final = "NotSent"
_NOT_SENT: Final = (
    "the control plane names no configuration for this node: its pool is paused or not rendered, no pool selects it, or the control plane is "
    "of a release that renders and serves none; `handfast machine pools` tells which"
)

_log = structlog.get_logger("handfast.node")


class Meta(partial.Meta, frozen=True, gc=False):
    """… with annotations."""

    annotations: dict[str, str] | None = None


class Node(msgspec.Struct, frozen=True, gc=False):
    """A Node as far as it is looked at here."""

    metadata: Meta = Meta()


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of this machine: on its Node, in its health, in its metrics."""

    state: str = ""
    current: str = ""
    desired: str = ""
    reason: str = ""
    drifted: int = 0


class Configuration:
    """The configuration of one machine; `connection` says where the API server is, and has the credentials of this instant."""

    def __init__(
        self,
        client: api.Client,
        node: str,
        machine: configuration_state.Machine,
        connection: Callable[[], connections.Connection],
        clock: clocks.Clock,
        *,
        server: str = "",
        own: tuple[str, ...] = (),
    ) -> None:
        self._client = client
        self._node = node
        self._machine = machine
        self._connection = connection
        self._clock = clock
        self._server = server
        self._own = (*own, configuration_state.DIRECTORY)
        self._aside = aside.Aside(_OWNER)
        source = watch.Source(
            resource=resources.NODES, view=Node, scope=api.Scope(field_selector=f"metadata.name={node}")
        )
        self._informer: cache.Informer[Node] = cache.Informer(source)
        self._informer.subscribe(self._changed)
        self._reflector = watch.Reflector(client, source, self._informer, clock=clock)
        self._wake = asyncio.Event()
        # The annotations of the Node, by the watch or by the answer to our own write; None: there is no Node.
        self._annotations: dict[str, str] | None = None
        self._backoff = backoff.Backoff(_RETRY)
        self._troubled_since: float | None = None
        self._retry_at = 0.0
        # Since when the Node names no rendering; None: it names one. And whether that was told as a warning; None: it was not told.
        self._unsent_since: float | None = None
        self._told: bool | None = None
        # What was wanted when the last attempt failed.
        self._tried = ""
        self.status = Status()

    async def run(self) -> None:
        """Never returns."""
        async with tasks.Group("configuration") as group:
            group.start(self._reflector.run(), name="watch")
            group.start(self._follow(), name="follow")
            await group.wait()

    async def _follow(self) -> None:
        await self._informer.wait_synced()
        while True:
            try:
                seconds = await self._turn()
            except errors.HandfastError as error:
                _log.warning("the configuration is not looked after", reason=error.reason, error=error.message)
                self._say_here(names.DEGRADED, f"{error.reason}: {error.message}")
                seconds = next(self._backoff)
            await tasks.within(self._wake.wait(), self._clock, seconds)
            self._wake.clear()

    def problem(self) -> str | None:
        """For a health check."""
        status = self.status
        if status.state in {"", names.DONE, names.WORKING} and not status.reason:
            return None
        return f"{status.state or 'waiting'}: {status.reason}"

    async def _turn(self) -> float:
        """One look at what is wanted and at what is here; in how many seconds the next is due."""
        annotations = self._annotations
        if annotations is None:
            return LOOK
        desired = annotations.get(names.DESIRED, "")
        record = await self._thread(self._begin)
        if desired != self._tried:
            # 4. another rendering at once
            self._tried, self._retry_at, self._troubled_since = desired, 0.0, None
            self._backoff.reset()
        self._say_here(self.status.state, self.status.reason, desired=desired, current=record.applied.rendering)
        if desired and desired == record.held:
            # 7. taken back by hand
            return await self._degraded(
                f"{RESTORED_BY_HAND}: {desired} was taken back on this machine; `handfast node configuration restore --undo` lets it be "
                "applied again, and so does another rendering"
            )
        if desired and (desired != record.applied.rendering or (record.adopted and not await self._drifts(record))):
            return await self._reach(desired)
        # 6. what lies there, against what should
        seconds = await self._looked(await self._drifts(record))
        return min(seconds, self._wait_to_be_sent(desired))

    def _wait_to_be_sent(self, desired: str) -> float:
        """Tell once that no rendering is named, and once more, louder, when that lasts (8); when to look again."""
        if desired:
            self._unsent_since = self._told = None
            return LOOK
        now = self._clock.monotonic()
        since = self._unsent_since = now if self._unsent_since is None else self._unsent_since
        late = now - since >= PATIENCE
        if self._told != late:
            tell = _log.warning if late else _log.info
            tell("no configuration is named for this node", reason=NOT_SENT, why=_NOT_SENT)
            self._told = late
        return LOOK if late else since + PATIENCE - now

    def _begin(self) -> configuration_state.Record:
        """What is applied, after what a crash left was rolled back and what Ignition left was taken over (2)."""
        if self._machine.unfinished():
            self._machine.recover()
        record = self._machine.record()
        if record == configuration_state.Record() and (plan := self._left_by_ignition()) is not None:
            self._machine.adopt(plan)
            record = self._machine.record()
        return record

    def _left_by_ignition(self) -> applying.Plan | None:
        root = self._machine.root
        return applying.adopted(root.read(host_paths.NODE_ANNOTATIONS), root.read(host_paths.CONTENT))

    async def _drifts(self, record: configuration_state.Record) -> tuple[drift.Drift, ...]:
        return await self._thread(self._machine.drifts, record)

    async def _looked(self, drifts: tuple[drift.Drift, ...]) -> float:
        if drifts:
            if not self.status.drifted:
                _log.warning("this machine has drifted", paths=[row.path for row in drifts[:_NAMED_IN_LOG]])
            await self._degraded(f"{DRIFT}: {drift.sentence(drifts)}", drifted=len(drifts))
            return LOOK_AGAIN
        if self.status.drifted:
            _log.info("the drift is gone")
        # A machine that no configuration has reached says only that it follows.
        await self._report(names.DONE if self.status.current else "")
        return LOOK

    async def _reach(self, desired: str) -> float:
        """Fetch and apply a rendering, or say why not (3, 4, 5)."""
        wait = self._retry_at - self._clock.monotonic()
        if wait > 0:
            return wait
        try:
            plan = await self._plan(desired)
            if not await self._thread(self._credential_alone, plan):
                await self._report(names.WORKING)
            changed = await self._thread(self._apply, plan)
        except errors.HandfastError as error:
            return await self._failed(error)
        self._troubled_since = None
        self._backoff.reset()
        _log.info("a configuration was applied", rendering=desired, paths=changed[:_NAMED_IN_LOG], changed=len(changed))
        self._say_here(names.DONE, "", current=desired)
        await self._report(names.DONE)
        return LOOK

    async def _plan(self, desired: str) -> applying.Plan:
        target = self._target(applying.pool_of(desired))
        body = await machine_configs.fetch(target)
        return await self._thread(self._planned, body, desired)

    def _planned(self, body: bytes, desired: str) -> applying.Plan:
        config = applying.parse(body)
        sections = self._machine.record().applied.sections
        vendor = configuration_state.vendor_units(self._machine.root, planned_units.vendor_wanted(config))
        machine = applying.Machine(own=self._own, vendor_units=vendor, sections=sections)
        return applying.plan(config, desired, machine)

    def _apply(self, plan: applying.Plan) -> tuple[str, ...]:
        try:
            return self._machine.apply(plan)
        except errors.HandfastError:
            # 10. nothing else keeps the credential away
            if changed := self._machine.apply_credential(plan):
                _log.info("the credential was applied without the rest", rendering=plan.rendering, paths=changed)
            raise

    def _credential_alone(self, plan: applying.Plan) -> bool:
        return applying.credential_alone(self._machine.root.read(host_paths.CONTENT), plan)

    def _target(self, pool: str) -> machine_configs.Target:
        connection = self._connection()
        if connection.cert_pem is None or connection.ca_pem is None:
            raise errors.Refused(
                "this node has no certificate and no CA with which to ask a machine-config server",
                reason="NoCertificate",
                hint="have the node join by a certificate; a kubeconfig with a token is no proof there",
            )
        base = self._server or default_server(connection.server)
        return machine_configs.Target(
            url=f"{base.rstrip('/')}/config/{urllib.parse.quote(pool, safe='')}",
            ca_pem=connection.ca_pem,
            cert_pem=connection.cert_pem,
            key_pem=connection.key_pem,
        )

    async def _failed(self, error: errors.HandfastError) -> float:
        now = self._clock.monotonic()
        since = self._troubled_since = now if self._troubled_since is None else self._troubled_since
        wait = max(next(self._backoff), getattr(error, "retry_after", 0.0))
        self._retry_at = now + wait
        _log.warning(
            "the configuration is not applied",
            reason=error.reason,
            error=error.message,
            hint=error.hint,
            again_in=round(wait),
        )
        hint = f" ({error.hint})" if error.hint else ""
        sentence = f"{error.reason}: {error.message}{hint}"
        # 5. what may pass by itself is given its time
        if isinstance(error, errors.Unavailable) and now - since < PATIENCE:
            self._say_here(self.status.state, sentence)
            return wait
        state = error.state if isinstance(error, applying.CannotApply) else names.DEGRADED
        await self._report(state, sentence)
        return wait

    # What is said.

    async def _degraded(self, sentence: str, *, drifted: int = 0) -> float:
        await self._report(names.DEGRADED, sentence, drifted=drifted)
        return LOOK

    def _say_here(
        self, state: str, reason: str, *, desired: str | None = None, current: str | None = None, drifted: int = 0
    ) -> None:
        before = self.status
        self.status = Status(
            state=state,
            reason=short(reason),
            desired=before.desired if desired is None else desired,
            current=before.current if current is None else current,
            drifted=drifted,
        )

    async def _report(self, state: str, reason: str = "", *, drifted: int = 0) -> None:
        """Write on the Node what is not there yet (1)."""
        self._say_here(state, reason, drifted=drifted)
        status = self.status
        # 8. for whoever asks on this machine; on the Node everybody sees it
        waits = "" if status.desired else f"{NOT_SENT}: {_NOT_SENT}"
        await self._thread(
            self._machine.say,
            configuration_state.Report(desired=status.desired, state=status.state, reason=status.reason or waits),
        )
        said = {names.AGENT: names.AGENT_VERSION}
        if status.state:
            said |= {names.STATE: status.state, names.REASON: status.reason}
        if status.current:
            said |= {names.CURRENT: status.current}
        before = self._annotations
        known = before or {}
        differing = {key: text for key, text in said.items() if known.get(key) != text}
        if differing:
            node = await self._client.patch(resources.NODES, self._node, {"metadata": {"annotations": differing}})
            # What the watch told meanwhile may be newer than the answer: somebody may have sent this node elsewhere since.
            if self._annotations is before:
                self._annotations = jsonpath.mapping(node, "metadata", "annotations")

    def _changed(self, _old: Node | None, new: Node | None) -> None:
        self._annotations = None if new is None else new.metadata.annotations or {}
        self._wake.set()

    async def _thread(self, do: Callable[..., configuration_state.T], *arguments: object) -> configuration_state.T:
        try:
            return await self._aside.run(_OWNER, do, *arguments)
        except errors.HandfastError:
            raise
        except Exception as error:
            # 9. what nobody foresaw
            _log.error("looking after the configuration failed", exc_info=error)
            raise errors.Misuse(f"this agent failed with {type(error).__name__}; its log says more") from error


def default_server(api_server: str) -> str:
    """Where the machine-config server of a cluster is, if nobody says otherwise: beside the API server."""
    host = urllib.parse.urlsplit(api_server).hostname or ""
    return f"https://{f'[{host}]' if ':' in host else host}:{names.SERVER_PORT}"


def short(text: str) -> str:
    """At most a kibibyte, whole characters."""
    data = text.encode("utf-8")
    return text if len(data) <= _MAX_REASON else f"{data[: _MAX_REASON - 3].decode('utf-8', 'ignore')}…"
