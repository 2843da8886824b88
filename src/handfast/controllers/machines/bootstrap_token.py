# SPDX-License-Identifier: Apache-2.0
"""Keeps the worker's credential: the account `node-bootstrapper`, and the Secret `node-bootstrapper-token` with its token.

Whoever deletes the Secret revokes the token; a new, empty Secret is made here, and the controller of tokens in Secrets fills it
in (`cluster.service_account_tokens`, or the cluster's own). What was filled in is never written over.
`rules.machines.bootstrap_token` says what is to be done next.

1. What there is is read from the server, the account before the Secret: what an account remembers of a Secret was in it
   before the Secret is looked at. A watch only says when to look.
2. One step at a time, and each write carries what it was decided of: the UID of what is deleted, the version of what is
   changed. So several copies do no harm, nor does an end between any two steps.
3. That an account is replaced is told before it is done. Its other tokens end, too, and have to be asked for anew.
4. What waits has a reason: in the log once, in the metric as long as it lasts, in an Event where a person has to act.
"""

from __future__ import annotations

from typing import Final

import prometheus_client
import structlog

from handfast.api import objects, resources, status
from handfast.client import api, cache, events, partial, watch
from handfast.controllers import loop, views
from handfast.rules.machines import bootstrap_token as rules
from handfast.rules.machines import bootstrapper
from handfast.runtime import clock as clocks

NAME = "node-bootstrapper-token-controller"
KEY: Final = "keep"
SECRET_MADE: Final = "TokenSecretMade"  # noqa: S105 - a reason
ACCOUNT_MADE: Final = "BootstrapAccountMade"
RETURNED: Final = "RevokedTokenReturned"
_RETURNED_MESSAGE: Final = (
    f"the token in {bootstrapper.TOKEN_SECRET} is one that was revoked: this cluster's service account tokens have nothing random "
    "in them, so that the same one was made again. The ServiceAccount is made anew, with which every token of it ends: ask for "
    "those of single machines again"
)
# An object that comes and goes while a watch is interrupted is never shown: no event would come of it.
_LOOK_AGAIN: Final = 10.0

_log = structlog.get_logger("handfast.bootstrap_token")
STEPS = prometheus_client.Counter(
    "handfast_bootstrap_token_steps", "What was done to keep the worker's credential, by step.", ["step"]
)
WAITING = prometheus_client.Gauge(
    "handfast_bootstrap_token_waiting", "1 while keeping the worker's credential waits for this reason.", ["reason"]
)


def _followed(resource: api.Addressable, name: str) -> watch.Source[partial.Partial]:
    scope = api.Scope(namespace=bootstrapper.NAMESPACE, field_selector=f"metadata.name={name}")
    return watch.Source(resource=resource, view=partial.Partial, scope=scope, metadata=True)


_NAMESPACE: Final = watch.Source(
    resource=resources.NAMESPACES,
    view=views.Namespace,
    scope=api.Scope(field_selector=f"metadata.name={bootstrapper.NAMESPACE}"),
)
_ACCOUNT: Final = _followed(resources.SERVICE_ACCOUNTS, bootstrapper.ACCOUNT)
_SECRET: Final = _followed(resources.SECRETS, bootstrapper.TOKEN_SECRET)


class BootstrapToken:
    """Handles the one key."""

    def __init__(self, client: api.Client, clock: clocks.Clock, namespaces: cache.Informer[views.Namespace]) -> None:
        self._client = client
        self._clock = clock
        self._namespaces = namespaces
        self._recorder = events.Recorder(client, clock, NAME)
        # Why it waits, and of which Secret an Event says so.
        self._reason = ""
        self._told_of = ("", "")

    async def reconcile(self, _key: str) -> float | None:
        # 1. what there is, the account before the Secret
        account = await self._find(resources.SERVICE_ACCOUNTS, bootstrapper.ACCOUNT)
        secret = await self._find(resources.SECRETS, bootstrapper.TOKEN_SECRET)
        step = rules.step(self._seen(account, secret))
        # 4. what waits has a reason
        await self._tell(step, secret)
        if isinstance(step, rules.Done):
            return None
        if isinstance(step, rules.Wait):
            return rules.FILLED_WITHIN if step.reason == rules.NOT_FILLED and not step.loud else None
        # 2. one step at a time
        try:
            await self._take(step, account)
        except status.StatusError as error:
            # The namespace is gone or ends. Its watch is late, and will tell.
            if error.reason != "NotFound" and not views.namespace_ends(error):
                raise
        return _LOOK_AGAIN

    async def _find(self, resource: api.Addressable, name: str) -> objects.Document | None:
        return await self._client.find(resource, name, namespace=bootstrapper.NAMESPACE)

    def _seen(self, account: objects.Document | None, secret: objects.Document | None) -> rules.Seen:
        namespace = self._namespaces.get("", bootstrapper.NAMESPACE)
        return rules.Seen(
            namespace is not None,
            ends=namespace is not None and namespace.terminating,
            account=None if account is None else rules.read_account(account),
            secret=None if secret is None else rules.read_secret(secret, self._clock.now()),
        )

    async def _take(self, step: rules.Step, account: objects.Document | None) -> None:
        match step:
            case rules.MakeAccount():
                made = await self._create(resources.SERVICE_ACCOUNTS, rules.account_document(), "account_made")
                await self._record(made, ACCOUNT_MADE, "made, for machines that are to join")
            case rules.MakeSecret(account_uid):
                made = await self._create(resources.SECRETS, rules.secret_document(account_uid), "secret_made")
                await self._record(made, SECRET_MADE, "made, and empty: whoever keeps tokens in Secrets fills it in")
            case rules.DropSecret(uid):
                await self._delete(resources.SECRETS, bootstrapper.TOKEN_SECRET, uid, "secret_dropped")
            case rules.ReplaceAccount(uid) if account is not None:
                # 3. told before it is done
                _log.warning("a revoked token is back, so its account is made anew", reason=RETURNED)
                await self._record(account, RETURNED, _RETURNED_MESSAGE, events.WARNING)
                await self._delete(resources.SERVICE_ACCOUNTS, bootstrapper.ACCOUNT, uid, "account_replaced")
            case rules.Remember(tokens) if account is not None:
                await self._remember(account, rules.written(tokens))

    async def _create(self, resource: api.Addressable, document: objects.Document, word: str) -> objects.Document:
        made = await self._client.create(resource, document, namespace=bootstrapper.NAMESPACE)
        STEPS.labels(word).inc()
        return {**document, **made}

    async def _delete(self, resource: api.Addressable, name: str, uid: str, word: str) -> None:
        await self._client.delete(resource, name, namespace=bootstrapper.NAMESPACE, uid=uid)
        STEPS.labels(word).inc()

    async def _remember(self, account: objects.Document, annotation: str) -> None:
        version = objects.metadata(account)["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version, "annotations": {rules.MEMORY: annotation}}}
        await self._client.patch(
            resources.SERVICE_ACCOUNTS, bootstrapper.ACCOUNT, patch, namespace=bootstrapper.NAMESPACE, metadata=True
        )
        STEPS.labels("token_remembered").inc()

    async def _tell(self, step: rules.Step, secret: objects.Document | None) -> None:
        reason = step.reason if isinstance(step, rules.Wait) else ""
        for each in rules.REASONS:
            WAITING.labels(each).set(each == reason)
        if isinstance(step, rules.Wait) and reason != self._reason:
            _log.info("keeping the bootstrap token waits", reason=reason, why=step.sentence)
        self._reason = reason
        if isinstance(step, rules.Wait) and step.loud and secret is not None:
            said = (reason, objects.metadata(secret)["uid"])
            if said != self._told_of:
                self._told_of = said
                await self._record(secret, reason, step.sentence, events.WARNING)

    async def _record(
        self, document: objects.Document, reason: str, message: str, severity: str = events.NORMAL
    ) -> None:
        meta = objects.metadata(document)
        regarding = events.Regarding(
            api_version="v1", kind=document["kind"], name=meta["name"], namespace=meta["namespace"], uid=meta["uid"]
        )
        await self._recorder.record(regarding, reason, message, severity=severity)


def build(context: loop.Context) -> loop.Controller[str]:
    namespaces = context.informers.get(_NAMESPACE)
    handler = BootstrapToken(context.client, context.clock, namespaces)
    controller: loop.Controller[str] = loop.Controller(NAME, handler.reconcile, clock=context.clock)
    controller.watches(namespaces, lambda _: [KEY])
    for source in (_ACCOUNT, _SECRET):
        controller.watches(context.informers.get(source), lambda _: [KEY])
    # Where there is nothing yet, no watch says a word.
    controller.queue.add(KEY)
    return controller
