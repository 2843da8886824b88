# SPDX-License-Identifier: Apache-2.0
"""Whether a Pod gets a proxy, and whether the proxy has an identity: decided from a few facts. It changes nothing.

Why a Pod gets none; all that hold are told, in this order:

1. It shares the network of its node, where a redirect would be everybody's.
2. It has a proxy already.
3. Its kind has no pod template.
4. What `linkerd.io/inject` says, at the namespace and at the Pod. The value at the Pod stands over that of the namespace. With neither,
   the webhook leaves a Pod alone; a person who names a manifest means it.
5. The token of its account is not mounted, where the proxy has to use that one.

And of an identity, by `linkerd.io/identity`:

6. Without a value, the mesh's default counts.
7. `enabled` needs identities in the control plane, `disabled` is always possible, and any other value is refused.
8. `enabled` is for Pods and pod templates: on anything else it would say what nobody does.

| who | holding | tries | stopped by | shown in tests/unit/rules/mesh/test_injectable.py |
|---|---|---|---|---|
| an operator | `identity: enabled` on a Deployment, not on its template | believe that its Pods have one | 8 | test_enabled_on_anything_but_a_pod_template_is_refused |
| … | a misspelt annotation | have no proxy, and not know it | 4 | test_a_value_that_is_not_known_is_a_reason_of_its_own |
| … | a mesh without identities | run a workload that thinks it has one | 7 | test_enabled_without_identities_in_the_control_plane_is_refused |
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

import msgspec

from handfast import errors
from handfast.api import jsonpath, objects
from handfast.rules.mesh import settings, workloads

INJECT: Final = "linkerd.io/inject"
IDENTITY: Final = "linkerd.io/identity"
_ON: Final = (settings.ENABLED, "ingress")
_VALUES: Final = (*_ON, settings.DISABLED, "")

PROXY: Final = "linkerd-proxy"
INIT: Final = "linkerd-init"
_PROXIES: Final = (PROXY, "istio-proxy")
_INITS: Final = (INIT, "istio-init")
_PROXY_IMAGES: Final = ("cr.l5d.io/linkerd/proxy:", "gcr.io/istio-release/proxyv2:")
_INIT_IMAGES: Final = ("cr.l5d.io/linkerd/proxy-init:", "gcr.io/istio-release/proxy_init:")


class Reason(enum.StrEnum):
    """Why a Pod gets no proxy, in Linkerd's words."""

    HOST_NETWORK = "host_network_enabled"
    SIDECAR = "sidecar_already_exists"
    UNSUPPORTED = "unsupported_resource"
    NAMESPACE_VALUE = "invalid_inject_annotation_at_ns"
    POD_VALUE = "invalid_inject_annotation_at_workload"
    DISABLED = "injection_disable_annotation_present"
    ABSENT = "injection_enable_annotation_absent"
    NO_TOKEN = "disabled_automount_service_account_token_account"  # noqa: S105 - a word


WORDS: Final[Mapping[Reason, str]] = {
    Reason.HOST_NETWORK: "hostNetwork is enabled",
    Reason.SIDECAR: "pod has a sidecar injected already",
    Reason.UNSUPPORTED: "this resource kind is unsupported",
    Reason.NAMESPACE_VALUE: f"{INJECT} has a value that is not known, at the namespace",
    Reason.POD_VALUE: f"{INJECT} has a value that is not known",
    Reason.DISABLED: f"{INJECT} is {settings.DISABLED}",
    Reason.ABSENT: f"{INJECT} is {settings.ENABLED} neither here nor at the namespace",
    Reason.NO_TOKEN: "automountServiceAccountToken is false, and the proxy is set to use that token",
}


class NoIdentities(errors.Refused):
    """An identity is asked for, and the control plane has none (7)."""

    reason = "MeshHasNoIdentities"


class BadAnnotation(errors.Refused):
    """The annotation has a value that is not known, or is where it may not be (7, 8)."""

    reason = "BadIdentityAnnotation"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is decided from. `by_request` is whether the webhook asks, rather than a person."""

    pod: str = ""
    namespace: str = ""
    host_network: bool = False
    sidecar: bool = False
    supported: bool = True
    token: bool = True
    by_request: bool = False


def facts(
    workload: workloads.Workload, *, namespace: str = "", by_request: bool = False, own_token: bool = True
) -> Facts:
    """The facts of a workload. `own_token` is whether the proxy has a token of its own; `namespace` is the value there."""
    return Facts(
        pod=workload.annotations.get(INJECT, ""),
        namespace=namespace,
        host_network=jsonpath.at(workload.spec, "hostNetwork") is True,
        sidecar=has_sidecar(workload),
        token=own_token or jsonpath.at(workload.spec, "automountServiceAccountToken") is not False,
        by_request=by_request,
    )


def reasons(known: Facts) -> tuple[Reason, ...]:
    """Why there is no proxy, all of it in order; empty: there is one."""
    rows = (
        # 1. a network of its own
        (known.host_network, Reason.HOST_NETWORK),
        # 2. no proxy yet
        (known.sidecar, Reason.SIDECAR),
        # 3. a pod template
        (not known.supported, Reason.UNSUPPORTED),
        # 4. the annotations, and 5. a token
        (_annotation(known) is not None, _annotation(known)),
        (not known.token, Reason.NO_TOKEN),
    )
    return tuple(reason for holds, reason in rows if holds and reason is not None)


def _annotation(known: Facts) -> Reason | None:
    """What the annotations say against it (4)."""
    if known.by_request and known.namespace not in _VALUES:
        return Reason.NAMESPACE_VALUE
    # 4. a misspelt value is not one that is absent
    if known.pod not in _VALUES:
        return Reason.POD_VALUE
    if not known.by_request:
        return Reason.DISABLED if known.pod == settings.DISABLED else None
    if known.namespace in _ON and known.pod == settings.DISABLED:
        return Reason.DISABLED
    if known.pod in _ON or (known.namespace in _ON and not known.pod):
        return None
    return Reason.ABSENT


def has_sidecar(workload: workloads.Workload) -> bool:
    """Whether a proxy of anybody's is there (2)."""
    rows = [row for rows in workload.containers.values() for row in rows]
    named = any(row["name"] in (*_PROXIES, *_INITS) for row in rows)
    return named or any(jsonpath.text(row, "image").startswith((*_PROXY_IMAGES, *_INIT_IMAGES)) for row in rows)


def has_identity(workload: workloads.Workload, chosen: settings.Settings) -> bool:
    """Whether the proxy of a workload has an identity (6, 7, 8)."""
    for depth in range(len(workload.place)):
        # 8. on the template, and not on what makes the Pods, nor on the template of a Job
        _require_none(workload.document, jsonpath.mapping(workload.document, *workload.place[:depth]))
    value = workload.annotations.get(IDENTITY)
    # 6. the mesh's default
    if value is None:
        return chosen.default_enabled
    # 7. one of two values
    if value not in {settings.ENABLED, settings.DISABLED}:
        raise BadAnnotation(
            f"{workloads.title(workload.document)}: {workload.path('metadata', 'annotations')}: {IDENTITY} is {value[:80]!r}",
            hint=f"allowed: {settings.ENABLED} or {settings.DISABLED}",
        )
    if value == settings.ENABLED and not chosen.enabled:
        raise NoIdentities(
            f"{workloads.title(workload.document)} has {IDENTITY}: {value}, and the control plane has no identities",
            hint="set identity.enabled with handfast mesh install --set, or take the annotation away",
        )
    return bool(value == settings.ENABLED)


def require_none(document: objects.Document) -> None:
    """Return if an object that is no Pod does not have an identity enabled, else refuse (8)."""
    _require_none(document, document)


def _require_none(document: objects.Document, holder: objects.Document) -> None:
    if jsonpath.text(holder, "metadata", "annotations", IDENTITY) == settings.ENABLED:
        raise BadAnnotation(
            f"{workloads.title(document)} has {IDENTITY}: {settings.ENABLED}, which is for Pods and pod templates",
            hint="put it on the pod template, or take it away",
        )
