# SPDX-License-Identifier: Apache-2.0
"""Revokes a bootstrap credential once its replacement is everywhere, where the operator asked for that: `revoke --after-rollout`.

`rules.machine_config.credential_rollout` says what is next. Whoever renders, serves and applies configurations distributes the
replacement; this waits for them, and makes and deletes objects of credentials. Revoking at once does not need it.

1. Pools and nodes are followed only while there is something to revoke, and looked at once a second at most: a fleet changes all the
   time, and each look goes through all of it.
2. Watches only say when to look. What is done is decided by what the server has at that moment, and every write carries the UID or the
   version that it was decided by. So neither two copies nor a crash between two steps do any harm.
3. Requests that came by the old credential are denied before what makes it count is deleted; those by certificate once more afterwards,
   since more may have come. The object with the operator's mark goes last.
4. While it waits, the log says why once, a metric for as long as it lasts, and an Event if a person has to act. A cut is an Event on the
   bootstrap account, which stays. The Event comes before the cut, so that no crash in between leaves a cut without one.
"""

from __future__ import annotations

from typing import Final

import prometheus_client
import structlog

from handfast.api import objects, resources
from handfast.client import api, events, machine_credentials, machine_rollout
from handfast.controllers import loop
from handfast.rules.machine_config import credential_rollout as rules
from handfast.rules.machine_config import rollout_facts
from handfast.rules.machines import bootstrap_token, bootstrapper, revocation
from handfast.runtime import clock as clocks

NAME = "credential-rollout-controller"
KEY: Final = "look"
CUT: Final = "BootstrapCredentialCut"
DISTRIBUTED: Final = "BootstrapTokenDistributed"
# 1. a fleet changes all the time
_LOOK_SECONDS: Final = 1.0
# An object that comes and goes while a watch is interrupted is never shown.
_LOOK_AGAIN: Final = 10.0
_KINDS: Final = (revocation.MASTER, revocation.WORKER)

_log = structlog.get_logger("handfast.credential_rollout")
STEPS = prometheus_client.Counter(
    "handfast_credential_rollout_steps", "What was done to revoke credentials after a roll-out, by step.", ["step"]
)
WAITING = prometheus_client.Gauge(
    "handfast_credential_rollout_waiting",
    "1 while the revocation of a credential waits for this reason.",
    ["kind", "reason"],
)


class CredentialRollout:
    """Handles the one key."""

    def __init__(self, context: loop.Context) -> None:
        self._client = context.client
        self._clock: clocks.Clock = context.clock
        self._informers = context.informers
        self._recorder = events.Recorder(context.client, context.clock, NAME)
        self.controller: loop.Controller[str] = loop.Controller(NAME, self.reconcile, clock=context.clock)
        self._objects = machine_rollout.Objects(context.informers, self._objects_changed)
        self._fleet: machine_rollout.Fleet | None = None
        # Why each kind waits, and for which reasons there was an Event.
        self._reasons: dict[str, str] = {}
        self._told: set[tuple[str, str]] = set()
        self.controller.needs(self._objects)

    def _objects_changed(self) -> None:
        self.controller.queue.add(KEY)

    def _fleet_changed(self) -> None:
        self.controller.queue.add_after(KEY, _LOOK_SECONDS)

    async def reconcile(self, _key: str) -> float | None:
        # 1. pools and nodes only while there is something to revoke
        if not self._objects.facts().under_way:
            self._rest()
            return None
        if self._fleet is None:
            self._fleet = machine_rollout.Fleet(self._informers, self._fleet_changed)
        if not self._fleet.synced:
            return _LOOK_SECONDS
        facts, acted = self._objects.facts(self._fleet), False
        for kind in _KINDS:
            decided = facts.step(kind, self._clock.now())
            await self._tell(kind, decided)
            if not isinstance(decided, rules.Nothing | rules.Wait):
                acted = await self._act(kind) or acted
        return _LOOK_SECONDS if acted else _LOOK_AGAIN

    def _rest(self) -> None:
        if self._fleet is not None:
            self._fleet.stop()
            self._fleet = None
        for kind in _KINDS:
            self._wait_for(kind, "")
        self._told.clear()

    async def _act(self, kind: str) -> bool:
        """Whether something was done."""
        # 2. by what the server has at this moment
        facts = await machine_rollout.look(self._client)
        decided = facts.step(kind, self._clock.now())
        match decided:
            case rules.Nothing() | rules.Wait():
                return False
            case rules.MakeNext(account_uid):
                document = bootstrap_token.secret_document(account_uid, bootstrapper.NEXT_TOKEN_SECRET)
                await self._client.create(resources.SECRETS, document, namespace=bootstrapper.NAMESPACE)
            case rules.Remember(tokens):
                await self._remember(facts, bootstrap_token.written(tokens))
            case rules.Mark(marked):
                for each in marked:
                    now = objects.timestamp(self._clock.now())
                    await machine_rollout.mark(self._client, each.target, each.uid, now)
            case rules.Cut():
                await self._cut(decided)
            case rules.DropNext():
                await self._drop(decided)
        STEPS.labels(type(decided).__name__).inc()
        return True

    async def _remember(self, facts: rollout_facts.Facts, annotation: str) -> None:
        version = objects.metadata(facts.account or {}).get("resourceVersion")
        patch = {"metadata": {"resourceVersion": version, "annotations": {bootstrap_token.MEMORY: annotation}}}
        await self._client.patch(
            resources.SERVICE_ACCOUNTS, bootstrapper.ACCOUNT, patch, namespace=bootstrapper.NAMESPACE, metadata=True
        )

    async def _cut(self, cut: rules.Cut) -> None:
        places = [each.target for each in cut.objects]
        titles = ", ".join(f"{kind} {namespace}/{name}" for kind, namespace, name in places)
        # 4. the Event first
        await self._announce(
            CUT, f"everyone with an agent has the replacement of the {cut.kind} credential: {titles} goes"
        )
        # 3. before what makes it count is deleted
        denied = await self._deny(cut)
        for each in cut.objects:
            kind, namespace, name = each.target
            if each is cut.objects[-1] and cut.kind == revocation.MASTER:
                # 3. once more, while the mark is there
                denied += await self._deny(cut)
            with api.MISSING_OK:
                await self._client.delete(machine_rollout.RESOURCES[kind], name, namespace=namespace, uid=each.uid)
        _log.info("the credential is cut", controller=NAME, kind=cut.kind, denied=list(denied))

    async def _deny(self, cut: rules.Cut) -> tuple[str, ...]:
        return await machine_credentials.deny(self._client, {cut.kind}, self._clock, cut.older_than)

    async def _drop(self, dropped: rules.DropNext) -> None:
        name = bootstrapper.NEXT_TOKEN_SECRET
        if not dropped.orphan:
            # 4. the Event first
            await self._announce(DISTRIBUTED, f"everyone with an agent has the new token: Secret {name} goes")
        with api.MISSING_OK:
            await self._client.delete(resources.SECRETS, name, namespace=bootstrapper.NAMESPACE, uid=dropped.uid)

    async def _announce(self, reason: str, sentence: str) -> None:
        _log.info(sentence, controller=NAME, reason=reason)
        await self._record(reason, sentence)

    def _wait_for(self, kind: str, reason: str) -> None:
        for each in rules.REASONS:
            WAITING.labels(kind, each).set(each == reason)
        self._reasons[kind] = reason

    async def _tell(self, kind: str, decided: rules.Step) -> None:
        # 4. why it waits
        before, reason = self._reasons.get(kind, ""), decided.reason if isinstance(decided, rules.Wait) else ""
        self._wait_for(kind, reason)
        if not isinstance(decided, rules.Wait):
            return
        if reason != before:
            _log.info("revoking a credential waits", controller=NAME, kind=kind, reason=reason, why=decided.sentence)
        if decided.loud and (kind, reason) not in self._told:
            self._told.add((kind, reason))
            await self._record(reason, decided.sentence, events.WARNING)

    async def _record(self, reason: str, message: str, severity: str = events.NORMAL) -> None:
        account = self._objects.facts().account or {}
        regarding = events.Regarding(
            api_version="v1",
            kind="ServiceAccount",
            name=bootstrapper.ACCOUNT,
            namespace=bootstrapper.NAMESPACE,
            uid=str(objects.metadata(account).get("uid") or ""),
        )
        await self._recorder.record(regarding, reason, message, severity=severity)


def build(context: loop.Context) -> loop.Controller[str]:
    handler = CredentialRollout(context)
    # Where there is nothing yet, no watch says a word.
    handler.controller.queue.add(KEY)
    return handler.controller
