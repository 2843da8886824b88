# SPDX-License-Identifier: Apache-2.0
"""Station: admission by webhooks. Asks those whose configurations concern a write, and does what they answer.

`rules.webhooks.matching` decides which these are, and `rules.webhooks.answers` what their answers mean. What is sent is made in
`webhook_review`, and `webhook_client` sends it. After a patch the writer completes the object anew (defaults, and what only
the server sets): `mutate` says if one changed something.

1. A dry run is refused by a webhook that does not promise to have no side effects then.
2. A webhook that fails ends the request with a 500, or is passed over if its failure policy is Ignore; this is logged
   when it begins and when it ends, and counted each time.
3. A refusal ends the request, with the webhook's own code and message. Warnings reach the caller in any case.
4. Mutating webhooks are asked one after the other, each about what the ones before it left. If one changes the object,
   the built-in plugins look at it again, and then those of the webhooks asked before that want to (IfNeeded). This
   happens once.
5. A patch must apply, and leave an object with the types of its kind; one that does not ends the request with a 500,
   whatever the failure policy.
6. Validating webhooks are asked at the same time. All are waited for; the first refusal in their order counts.
7. A webhook with match conditions is asked if all are true. If that cannot be found out, the write is refused with a 403, or the webhook
   is passed over if its failure policy is Ignore. Without the evaluator it is asked: it sees more than it wants to, never less.
   They are evaluated aside where the object is heavy, or they are not compiled yet.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/admission/test_webhooks.py |
|---|---|---|---|---|
| a hostile webhook | its own server | turn a write into one to another object | `answers`: who it is stays the same | test_identity_cannot_be_changed |
| a hostile webhook | its own server | set fields that only the server sets | they are put back | test_what_only_the_server_sets_is_put_back |
| a hostile webhook | its own server | store what no client could | 5 | test_a_patch_that_breaks_the_types_is_a_failure |
| a hostile webhook | its own server | answer one request with the answer to another | `answers`: the uid is random | test_a_wrong_uid_is_a_failure |
| a hostile webhook | its own server | make its refusal look like a success | `answers`: the code is 400 to 599 | test_denied_with_message_and_code |
| a hostile webhook | a configuration of its own | lock configurations against removal | `matching`: they are never sent | test_configurations_are_never_sent |
| who wants to pass a webhook | power to make it fail | have the write go through | 2: Fail is the default | test_failures_end_the_request |
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import structlog

from handfast.api import kinds, objects, status
from handfast.api.cel import engine, expressions
from handfast.api.codec import bounds
from handfast.api.custom import definitions
from handfast.api.merging import patch
from handfast.apiserver import uids
from handfast.apiserver.admission import plugin, webhook_client, webhook_review
from handfast.apiserver.state import items
from handfast.apiserver.state import replica as replica_module
from handfast.rules.policies import verdicts
from handfast.rules.webhooks import answers, matching
from handfast.rules.webhooks import configurations as rules
from handfast.runtime import clock as clocks

MUTATING = "admissionregistration.k8s.io/mutatingwebhookconfigurations/"
VALIDATING = "admissionregistration.k8s.io/validatingwebhookconfigurations/"
_NAMESPACES = "core/namespaces/"
_DEFINITIONS = f"{definitions.RESOURCE[0]}/{definitions.RESOURCE[1]}/"

# Outcomes that are counted: (webhook, outcome).
FAILED_OPEN, FAILED_CLOSED, DENIED = "FailedOpen", "FailedClosed", "Denied"
Count = Callable[[str, str], None]
# Takes how many bytes are read beside the object, and what is to be done.
Work = Callable[..., Awaitable[Any]]

_log = structlog.get_logger("handfast.webhooks")
_encode = msgspec.json.Encoder().encode
# A webhook, and the kind under which it sees the object.
Concerned = tuple[rules.Webhook, kinds.Kind]


def _count_nothing(_webhook: str, _outcome: str) -> None:
    """Where nobody wants numbers."""


class _Configurations:
    """The configurations of one sort, as they are stored now, and whom a write concerns."""

    def __init__(self, prefix: str, table: Iterable[kinds.Kind]) -> None:
        self.prefix = prefix
        self._table = table
        self._by_name: dict[str, tuple[rules.Webhook, ...]] = {}
        self._ordered: tuple[rules.Webhook, ...] = ()
        self._concerned: dict[tuple[str, ...], tuple[Concerned, ...]] = {}

    def put(self, item: items.Item) -> None:
        webhooks = self._by_name[item.name] = rules.parse(item.document())
        for webhook in webhooks:
            if webhook.wrong:
                _log.warning("a webhook cannot be called", **_named(webhook), error=webhook.wrong)
            if webhook.conditions and not engine.is_available():
                _log.warning("matchConditions are not evaluated: the webhook is asked without", **_named(webhook))
        self._reorder()

    def drop(self, name: str) -> None:
        self._by_name.pop(name, None)
        self._reorder()

    def _reorder(self) -> None:
        self._ordered = rules.ordered(self._by_name)
        self.forget()

    def forget(self) -> None:
        """Find out anew whom a write concerns: the configurations, or the kinds that are served, have changed."""
        self._concerned.clear()

    def concerned(self, operation: str, kind: kinds.Kind, subresource: str) -> tuple[Concerned, ...]:
        """Whom a write concerns by the rules, before selectors are looked at."""
        if not self._ordered:
            return ()
        key = (operation, kind.group, kind.version, kind.plural, subresource)
        concerned = self._concerned.get(key)
        if concerned is None:
            others = [row for row in self._table if row.prefix == kind.prefix and row.api_version != kind.api_version]
            pairs = [(each, matching.matched(each, operation, (kind, *others), subresource)) for each in self._ordered]
            concerned = self._concerned[key] = tuple((each, row) for each, row in pairs if row is not None)
        return concerned


class _Admission(msgspec.Struct, frozen=True):
    """One write on its way past the webhooks, and what they say beside yes and no."""

    write: plugin.Write
    options: Mapping[str, Any]
    warnings: list[str] = msgspec.field(default_factory=list)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    work: Work | None = None


class Webhooks:
    """Every admission webhook of the cluster. `count` is told of failures and refusals, for metrics."""

    def __init__(
        self,
        replica: replica_module.Replica,
        clock: clocks.Clock,
        *,
        table: Iterable[kinds.Kind] | None = None,
        count: Count = _count_nothing,
    ) -> None:
        served = kinds.builtin() if table is None else table
        self._replica = replica
        self._client = webhook_client.Client(replica, clock)
        self._count = count
        self._mutating = _Configurations(MUTATING, served)
        self._validating = _Configurations(VALIDATING, served)
        # Those that failed when they were last asked.
        self._failing: set[tuple[str, str, int]] = set()

    def load(self) -> None:
        """Take in what the copy holds, and follow it from now on. No event may have been applied in between."""
        for configurations in (self._mutating, self._validating):
            collection = self._replica.collection(configurations.prefix)
            for item in collection.snapshot():
                configurations.put(item)
            collection.listen(self, functools.partial(self._changed, configurations))
        self._replica.collection(_DEFINITIONS).listen(self, self._kinds_changed)

    def _changed(self, configurations: _Configurations, change: items.Change) -> None:
        name = (change.after or change.gone()).name
        self._failing = {row for row in self._failing if row[:2] != (configurations.prefix, name)}
        if change.after is None:
            configurations.drop(name)
        else:
            configurations.put(change.after)

    def _kinds_changed(self, _change: items.Change) -> None:
        self._mutating.forget()
        self._validating.forget()

    async def close(self) -> None:
        for prefix in (MUTATING, VALIDATING, _DEFINITIONS):
            self._replica.collection(prefix).forget(self)
        await self._client.close()

    def has_mutating(self, operation: str, kind: kinds.Kind, subresource: str) -> bool:
        """Whether `mutate` may have somebody to ask."""
        return bool(self._mutating.concerned(operation, kind, subresource))

    def has_validating(self, operation: str, kind: kinds.Kind, subresource: str) -> bool:
        return bool(self._validating.concerned(operation, kind, subresource))

    # --- mutating

    async def mutate(
        self,
        write: plugin.Write,
        options: dict[str, Any],
        warnings: list[str],
        *,
        annotations: dict[str, str] | None = None,
        between: Callable[[], Awaitable[None]] | None = None,
        work: Work | None = None,
    ) -> bool:
        """Let webhooks change the document, in place; whether one did. `between` runs the built-in plugins again.

        `annotations` receives what webhooks say for the audit log; `work` evaluates aside where something is heavy.
        """
        admission = _Admission(write, options, warnings, {} if annotations is None else annotations, work)
        rounds = matching.Rounds()
        # 4. one after the other; and once more, if one changed the object
        if not await self._round(admission, rounds, 0):
            return False
        if between is not None:
            before = _encode(write.document)
            await between()
            if _encode(write.document) != before:
                rounds.changed_by_others()
        await self._round(admission, rounds, 1)
        return True

    async def _round(self, admission: _Admission, rounds: matching.Rounds, number: int) -> bool:
        write, changed = admission.write, False
        concerned = self._mutating.concerned(write.operation, write.kind, write.subresource)
        for index, (webhook, kind) in enumerate(concerned):
            if (number and not rounds.again(webhook)) or not self._selects(webhook, write):
                continue
            if not await self._meets(webhook, kind, admission):
                continue
            did = await self._mutate_one(admission, webhook, kind, f"round_{number}_index_{index}")
            rounds.answered(webhook, changed=did)
            changed |= did
        return changed

    async def _mutate_one(self, admission: _Admission, webhook: rules.Webhook, kind: kinds.Kind, where: str) -> bool:
        document = admission.write.document
        try:
            answer = await self._answer(admission, webhook, kind, mutating=True)
            after = _changed_document(admission.write, webhook, kind, answer) if answer.patch else None
        except (answers.CallFailed, answers.BadPatch) as error:
            self._failed(MUTATING, webhook, error)
            admission.annotations[f"failed-open.mutation.webhook.admission.k8s.io/{where}"] = webhook.name
            return False
        if answer.patch:
            self._succeeded(MUTATING, webhook)
        if document is None or after is None:
            return False
        document.clear()
        document.update(after)
        return True

    # --- validating

    async def validate(
        self,
        write: plugin.Write,
        options: dict[str, Any],
        warnings: list[str],
        *,
        annotations: dict[str, str] | None = None,
        work: Work | None = None,
    ) -> None:
        """Let webhooks refuse the document as it will be stored."""
        rows = self._validating.concerned(write.operation, write.kind, write.subresource)
        # By their order, not by who was faster: the same write gets the same answer.
        admissions = []
        for webhook, kind in rows:
            admission = _Admission(write, options, work=work)
            if self._selects(webhook, write) and await self._meets(webhook, kind, admission):
                admissions.append((admission, webhook, kind))
        # 6. all at the same time
        results = await asyncio.gather(
            *(self._validate_one(*row, f"round_0_index_{index}") for index, row in enumerate(admissions)),
            return_exceptions=True,
        )
        for admission, _, _ in admissions:
            warnings += admission.warnings
            if annotations is not None:
                annotations |= admission.annotations
        for result in results:
            if result is not None:
                raise result

    async def _validate_one(self, admission: _Admission, webhook: rules.Webhook, kind: kinds.Kind, where: str) -> None:
        try:
            await self._answer(admission, webhook, kind, mutating=False)
        except answers.CallFailed as error:
            self._failed(VALIDATING, webhook, error)
            admission.annotations[f"failed-open.validating.webhook.admission.k8s.io/{where}"] = webhook.name

    # --- both

    def _selects(self, webhook: rules.Webhook, write: plugin.Write) -> bool:
        if webhook.namespace_selector.empty and webhook.object_selector.empty:
            return True
        labels = None if webhook.namespace_selector.empty else self._namespace_labels(write)
        return matching.selects(webhook, labels, (write.document, write.old))

    async def _meets(self, webhook: rules.Webhook, kind: kinds.Kind, admission: _Admission) -> bool:
        """Whether its match conditions are true (7)."""
        if not webhook.conditions or not engine.is_available():
            return True
        write = admission.write
        evaluation = (webhook.conditions, write, admission.options, kind)
        try:
            if admission.work is None:
                return _conditions_hold(*evaluation)
            return bool(await admission.work(functools.partial(_weight, *evaluation), _conditions_hold, *evaluation))
        except engine.NotEvaluated as error:
            self._count(webhook.name, FAILED_OPEN if webhook.fails_open else FAILED_CLOSED)
            if webhook.fails_open:
                return False
            raise status.forbidden(write.kind.plural, write.kind.group, write.name, error.message) from None

    def _namespace_labels(self, write: plugin.Write) -> Mapping[str, str] | None:
        name = write.namespace
        if write.kind.resource == matching.NAMESPACES:
            if write.document is not None and not write.subresource:
                return matching.labels(write.document) or {}
            name = write.name
        elif not write.kind.namespaced:
            return None
        namespace = self._replica.collection(_NAMESPACES).get("", name)
        if namespace is None:
            # Nobody knows whether the selector matches, and a webhook is not passed over on a guess.
            raise status.not_found("namespaces", "", name)
        return namespace.labels()

    async def _answer(
        self, admission: _Admission, webhook: rules.Webhook, kind: kinds.Kind, *, mutating: bool
    ) -> answers.Answer:
        """Ask one webhook; raises its refusal, or `CallFailed`."""
        # 1. a dry run only where it has no side effects
        if admission.write.dry_run and not webhook.dry_run:
            raise answers.dry_run_refused(webhook.name)
        uid = uids.new()
        body = await self._client.call(
            webhook, _encode(webhook_review.review(admission.write, admission.options, kind, uid))
        )
        answer = answers.read_answer(webhook, body, uid, mutating=mutating)
        # Whether a patch can be applied is seen later.
        if not answer.patch or answer.refusal is not None:
            self._succeeded(MUTATING if mutating else VALIDATING, webhook)
        # 3. warnings in any case, then the refusal
        admission.warnings.extend(answer.warnings)
        admission.annotations.update(answer.annotations)
        if answer.refusal is not None:
            self._count(webhook.name, DENIED)
            raise answer.refusal
        return answer

    def _failed(self, prefix: str, webhook: rules.Webhook, error: answers.CallFailed | answers.BadPatch) -> None:
        """Log and count a failure; raise it unless the webhook may be passed over (2; a bad patch never is, 5)."""
        passed_over = webhook.fails_open and isinstance(error, answers.CallFailed)
        self._count(webhook.name, FAILED_OPEN if passed_over else FAILED_CLOSED)
        key = (prefix, *webhook.key)
        if key not in self._failing:
            self._failing.add(key)
            _log.warning("an admission webhook fails", **_named(webhook), error=error.message, passed_over=passed_over)
        if not passed_over:
            raise answers.failure(webhook.name, error.message) from None

    def _succeeded(self, prefix: str, webhook: rules.Webhook) -> None:
        key = (prefix, *webhook.key)
        if key in self._failing:
            self._failing.remove(key)
            _log.info("an admission webhook answers again", **_named(webhook))


def _seen(write: plugin.Write, options: Mapping[str, Any], kind: kinds.Kind) -> dict[str, Any]:
    """What match conditions see of a write."""
    request = webhook_review.review(write, options, kind, "")["request"]
    return {"object": request.pop("object"), "oldObject": request.pop("oldObject"), "request": request}


def _weight(
    conditions: Sequence[tuple[str, str]], write: plugin.Write, options: Mapping[str, Any], kind: kinds.Kind
) -> float:
    """What conditions cost, in bytes that take as long to read."""
    cost = verdicts.price(conditions, expressions.Sizes(_seen(write, options, kind)))
    return bounds.LIGHT_BYTES * cost / verdicts.LIGHT_COST


def _conditions_hold(
    conditions: Sequence[tuple[str, str]], write: plugin.Write, options: Mapping[str, Any], kind: kinds.Kind
) -> bool:
    values = verdicts.Values(_seen(write, options, kind), has_params=False)
    return verdicts.conditions_hold(conditions, values, verdicts.Budget())


def _named(webhook: rules.Webhook) -> dict[str, str]:
    return {"configuration": webhook.configuration, "webhook": webhook.name}


def _changed_document(
    write: plugin.Write, webhook: rules.Webhook, kind: kinds.Kind, answer: answers.Answer
) -> objects.Document | None:
    """The document as the webhook's patch leaves it; None if it changes nothing."""
    sent = webhook_review.as_kind(write.kind, kind, write.document)
    # 5. it must apply, and leave an object with the types of its kind
    after = answers.patched(webhook.name, sent, answer.patch)
    if sent is None or patch.json_equal(after, sent):
        return None
    webhook_review.check_types(after)
    return webhook_review.restored(write, kind, after)
