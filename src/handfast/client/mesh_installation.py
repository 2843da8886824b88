# SPDX-License-Identifier: Apache-2.0
"""Installs the mesh's control plane over the API, whichever server that is. It prints nothing, and starts no service.

What is applied is in `rules.mesh.installation`, what it comes to in `rules.mesh.install_plan`.

1. Everything that is there is read first, and the whole of it decided. What is refused is refused before the first write.
2. So is what the caller may not write: the server is asked for each object before the first write.
3. What says the same already is kept. Doing it twice changes nothing. Rights that differ become what this version needs.
4. Namespace, accounts and rights come first, then the Services of what runs outside the cluster, then anchors, issuer and settings. The
   webhook comes last, and only where it is said where the injector is, or where it is there already.
5. Whoever changed one of these objects in between is not written over: the second of two at the same time is refused.

A server may still refuse what it was asked about, such as a role that gives more than the caller has. Then what was written before
stays, and the same command does the rest.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from handfast import errors
from handfast.api import jsonpath, kinds, objects, resources, status
from handfast.bootstrap import first_objects
from handfast.client import api, tokens
from handfast.rules.mesh import (
    control_plane,
    deployments,
    install_plan,
    installation,
    issuer,
    services,
    sidecar,
    webhook,
)

CREATED: Final = "created"
UPDATED: Final = "updated"
KEPT: Final = "kept"
INJECTOR: Final = "injector"
# In the version that Handfast's own API server says it is.
_OWN_SERVER: Final = "+handfast-"
_VERBS: Final = {CREATED: "create", UPDATED: "update"}
_WHO: Final = kinds.row("selfsubjectreviews", "authentication.k8s.io")
_MAY: Final = kinds.row("selfsubjectaccessreviews", "authorization.k8s.io")
_ROLE_BINDINGS: Final = kinds.row("rolebindings", "rbac.authorization.k8s.io")


class Step(msgspec.Struct, frozen=True):
    """One object, what is there of it, and what is done."""

    wanted: first_objects.FirstObject
    there: objects.Document | None
    action: str


class Outcome(msgspec.Struct, frozen=True):
    """What was done with each object, in order, and the issuer that the mesh has."""

    steps: tuple[Step, ...]
    issuer: issuer.Issuer

    @property
    def changed(self) -> tuple[Step, ...]:
        """The steps that wrote something."""
        return tuple(step for step in self.steps if step.action != KEPT)


async def install(client: api.Client, typed: install_plan.Typed, now: datetime.datetime) -> Outcome:
    """Install the mesh, or bring it up to date."""
    # 1. read, and decide
    there = await _there(client, typed.namespace)
    plan = install_plan.decide(typed, there, now)
    if typed.endpoints:
        version = await tokens.version(client)
        services.require(typed.endpoints, loopback=_OWN_SERVER in version)
    steps = [
        *await _access(client, typed.namespace),
        *await _steps(client, (webhook.pair(typed.namespace), *services.outside(typed.namespace, typed.endpoints))),
        *(_step(wanted, document) for wanted, document in install_plan.documents(typed, there, plan)),
        *await _webhook(client, typed, plan),
    ]
    # 2. nothing is written unless all of it may be
    await _require_allowed(client, steps)
    for step in steps:
        await _write(client, step)
    return Outcome(tuple(steps), plan.issuer)


async def _there(client: api.Client, namespace: str) -> install_plan.There:
    return install_plan.There(
        config=await client.find(resources.CONFIG_MAPS, control_plane.CONFIG, namespace=namespace),
        anchors=await client.find(resources.CONFIG_MAPS, control_plane.TRUST_ANCHOR, namespace=namespace),
        signing=await client.find(resources.SECRETS, control_plane.SIGNING, namespace=namespace),
        rotation=await client.find(resources.SECRETS, control_plane.ROTATION, namespace=namespace),
    )


async def _access(client: api.Client, namespace: str) -> list[Step]:
    """Kinds that the server does not have, namespace, accounts and rights."""
    binding = await client.find(_ROLE_BINDINGS, installation.INSTALLERS, namespace=namespace)
    installers = installation.installers(binding, await _user(client))
    steps = []
    for row, wanted in zip(installation.KINDS, installation.kinds(), strict=True):
        if not await client.serves(row):
            steps.append(Step(wanted, None, CREATED))
    for wanted in installation.access(namespace, installers):
        document = await client.find(wanted, wanted.name, namespace=wanted.namespace)
        if document is not None:
            installation.require_same_role(document, wanted)
        steps.append(_step(wanted, document))
    return steps


async def _steps(client: api.Client, rows: Iterable[first_objects.FirstObject]) -> list[Step]:
    return [_step(wanted, await client.find(wanted, wanted.name, namespace=wanted.namespace)) for wanted in rows]


async def _webhook(client: api.Client, typed: install_plan.Typed, plan: install_plan.Plan) -> list[Step]:
    """The webhook, where there is an injector to answer it, or where it is there (4)."""
    (step,) = await _steps(client, [webhook.configuration(typed.namespace, plan.settings)])
    has_injector = INJECTOR in typed.endpoints
    if step.there is None:
        return [step] if has_injector else []
    is_ours = webhook.is_ours(step.there, typed.namespace)
    if has_injector and not is_ours:
        raise errors.Refused(
            f"{step.wanted.title} is there, and belongs to another mesh",
            reason="WebhookOfAnotherMesh",
            hint="a cluster has one injector: delete the webhook, or leave --endpoint injector out",
        )
    return [step] if is_ours else []


async def _user(client: api.Client) -> str:
    """Who is asking, as the server sees them; empty where it does not say."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    with api.MISSING_OK:
        return jsonpath.text(await client.create(_WHO, review), "status", "userInfo", "username")
    return ""


def _step(wanted: first_objects.FirstObject, there: objects.Document | None) -> Step:
    # 3. what says the same is kept
    if there is None:
        return Step(wanted, None, CREATED)
    return Step(wanted, there, KEPT if installation.updated(there, wanted) == there else UPDATED)


async def _require_allowed(client: api.Client, steps: Sequence[Step]) -> None:
    questions: dict[tuple[tuple[str, str], ...], Step] = {}
    for step in steps:
        if step.action != KEPT:
            # Of several objects of one kind, the first stands for all.
            questions.setdefault(tuple(_attributes(step).items()), step)
    for question, step in questions.items():
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": dict(question)},
        }
        if not jsonpath.at(await client.create(_MAY, review), "status", "allowed"):
            raise errors.Refused(
                f"you may not {_VERBS[step.action]} {step.wanted.title}; nothing was written",
                reason="Forbidden",
                hint="choose another credential with --kubeconfig",
            )


def _attributes(step: Step) -> dict[str, str]:
    wanted = step.wanted
    # A name cannot be asked about before the object is there.
    name = {"name": wanted.name} if step.action == UPDATED else {}
    place = {"namespace": wanted.namespace} if wanted.namespaced else {}
    return {"verb": _VERBS[step.action], "group": wanted.group, "resource": wanted.plural, **name, **place}


async def _write(client: api.Client, step: Step) -> None:
    wanted = step.wanted
    try:
        if step.there is None:
            await client.create(wanted, wanted.document, namespace=wanted.namespace)
        elif step.action == UPDATED:
            await client.update(wanted, installation.updated(step.there, wanted))
    except status.StatusError as error:
        # 5. somebody else was faster
        if error.reason not in {"AlreadyExists", "Conflict"}:
            raise
        raise errors.Refused(
            f"{wanted.title} was changed by somebody else at the same time",
            reason="MeshChangedMeanwhile",
            hint="run this again: it goes on from what is there",
        ) from None


def manifests(
    typed: install_plan.Typed, created_by: str, now: datetime.datetime
) -> tuple[Sequence[objects.Document], issuer.Issuer]:
    """The same objects for a cluster that has none of them, to be applied by others, and the control plane itself.

    Handfast's own server has the kinds already. What runs outside the cluster has Services alone.
    """
    nothing = install_plan.There()
    plan = install_plan.decide(typed, nothing, now)
    services.require(typed.endpoints, loopback=False)
    inside = sidecar.Plan(
        settings=plan.settings,
        anchors=plan.material.anchors.decode(),
        created_by=created_by,
        namespace=typed.namespace,
    )
    rows = (
        *installation.kinds(),
        *installation.access(typed.namespace, ()),
        webhook.pair(typed.namespace),
        *services.outside(typed.namespace, typed.endpoints),
        *(wanted for wanted, _ in install_plan.documents(typed, nothing, plan)),
        *(() if typed.endpoints else deployments.objects_of(inside)),
        *([webhook.configuration(typed.namespace, plan.settings)] if _has_injector(typed) else ()),
    )
    return [row.document for row in rows], plan.issuer


def _has_injector(typed: install_plan.Typed) -> bool:
    return not typed.endpoints or INJECTOR in typed.endpoints
