# SPDX-License-Identifier: Apache-2.0
"""Which identity a Pod has on a port: its name, none, or that it should have one and has not. It looks nothing up, and tells nobody.

A proxy speaks TLS to an endpoint that has a name, and plaintext to one that has none. So a wrong "none" is what must not be.

1. A Pod is of this mesh if it has the label of our control plane, the proxy's container, the annotation that says whether it has an identity,
   and a proxy that is told its own name. The injector writes all four. A label alone is nothing: anybody can write one.
2. A Pod with none of them is not of the mesh, and has no identity. Nor has one whose label names another control plane, unless its proxy
   belongs to ours.
3. A Pod whose annotation says `disabled`, and whose proxy is told no name, has none either: so somebody wanted it.
4. Whatever has some of the four and not the others should have an identity, and has none: it is withheld.
5. The name is that of its account. An account that can have no name is withheld; so is one that is revoked, and everybody where identities
   are switched off.
6. A port that the redirect of the Pod skips leads past the proxy. It has no identity. Which ports these are, the container that redirects was told when the
   Pod was made: the annotation, which can be changed later, counts only where there is no such container.
7. What a Pod says of itself is its own affair: it can choose no name but that of the account that it runs as.
8. Only an opaque port is called through the proxy's own port, with Linkerd's transport header. Others are called where they are: Envoy, which may be
   the proxy, does not know that header.

| who | holding | tries | stopped by | shown in tests/unit/rules/mesh/test_meshed.py |
|---|---|---|---|---|
| a tenant | the right to make Pods in one namespace | be taken for an account of another namespace | 7 | test_the_name_is_that_of_the_account_and_nothing_else |
| … | a Pod with our label and no proxy | have others wait for TLS that never comes, or go on in plaintext | 4 | test_a_label_alone_is_withheld |
| who may change a Pod's metadata | a Pod of the mesh | annotate all its ports as skipped | 6 | test_an_annotation_alone_leads_past_no_proxy |
| … | … | change label or annotation, so that others speak plaintext to it | 4 | test_each_of_the_four_alone_or_missing_is_withheld |
| who took over a workload | its identity, which was revoked | go on being called | 5 | test_a_revoked_account_is_withheld |
| a tenant | an account with a dot in its name | an endpoint without identity, in plaintext | 5 | test_an_account_that_can_have_no_name_is_withheld |
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from handfast import errors
from handfast.rules.mesh import injectable, injection, names, port_annotations, port_lists, settings, sidecar, views

_LAST_PORT: Final = 65535
_DIGITS: Final = re.compile(r"[0-9]{1,5}", re.ASCII)


class Reason(enum.StrEnum):
    """Why an endpoint is withheld."""

    PROXY_MISSING = "ProxyMissing"
    IDENTITY_UNCLEAR = "IdentityUnclear"
    NO_NAME = "IdentityImpossible"
    REVOKED = "IdentityRevoked"
    SWITCHED_OFF = "IdentitySwitchedOff"
    POD_UNKNOWN = "PodUnknown"
    ADDRESS_UNCLEAR = "AddressUnclear"


class Withheld(errors.Refused):
    """An endpoint that should have an identity and has none. `why` is the reason."""

    reason = "EndpointWithheld"

    def __init__(self, why: Reason, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.why = why


class Protocol(enum.StrEnum):
    """What a proxy is told of a connection to another: nothing, that HTTP/2 goes, or that it is no HTTP."""

    UNKNOWN = ""
    H2 = "h2"
    OPAQUE = "opaque"


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What one port of a Pod is: the name of its identity, or empty; and how its proxy is spoken to. Port 0: not by itself."""

    identity: str = ""
    protocol: Protocol = Protocol.UNKNOWN
    inbound_port: int = 0


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a Pod is judged by beside itself. `uid` is its account's, empty where it is not known."""

    mesh: names.Mesh
    enabled: bool = True
    uid: str = ""
    revoked: bool = False


PLAIN: Final = Standing()


def standing(pod: views.Pod, port: int, facts: Facts) -> Standing:
    """What a port of this Pod is; Withheld where it should have an identity and has none."""
    proxy = _proxy(pod, facts.mesh)
    if proxy is None:
        return PLAIN
    # The proxy's own ports are answered by itself: nothing is behind them that it would be told of.
    is_own = port in (_port(proxy, views.ADMIN), _port(proxy, views.CONTROL))
    # 6. past the proxy
    if not is_own and port in _past(pod):
        return PLAIN
    identity = _name(pod, facts)
    if not is_opaque(pod, port):
        return Standing(identity=identity, protocol=Protocol.H2)
    # 8. past the detection of a proxy of Linkerd's, which would take TLS on an opaque port for the application's
    return Standing(
        identity=identity, protocol=Protocol.OPAQUE, inbound_port=0 if is_own else _port(proxy, views.INBOUND)
    )


def is_opaque(item: views.Pod | views.Service, port: int) -> bool:
    """Whether a port is no HTTP, by the annotation; without one, the ports count that are usually none."""
    listed = (item.metadata.annotations or {}).get(port_annotations.OPAQUE)
    return port in (port_lists.OPAQUE if listed is None else port_lists.parse(listed, _named(item)))


def _proxy(pod: views.Pod, mesh: names.Mesh) -> views.Container | None:
    """The proxy of a Pod that has an identity; None where it has none by right. Withheld where the four do not agree."""
    label = pod.metadata.label(injection.CONTROL_PLANE)
    says = pod.metadata.annotation(injectable.IDENTITY)
    proxy = pod.proxy
    is_named = proxy is not None and any(proxy.variable(name) for name in views.NAMES)
    is_ours = label == mesh.control_plane_namespace
    # 2. none of them, or somebody else's
    if not is_ours and says != settings.ENABLED and proxy is None:
        return None
    if label and not is_ours and (proxy is None or proxy.variable(views.CONTROL_PLANE) != mesh.control_plane_namespace):
        return None
    # 3. without an identity, as somebody wanted
    if says == settings.DISABLED and not is_named:
        return None
    # 4. some of the four and not the others
    if proxy is None:
        raise Withheld(
            Reason.PROXY_MISSING,
            f"{_title(pod)} is marked as one of the mesh, and has no container {injectable.PROXY}",
            hint="have it injected, or take the label and the annotation away",
        )
    if not (is_ours and says == settings.ENABLED and is_named):
        raise Withheld(
            Reason.IDENTITY_UNCLEAR,
            f"{_title(pod)} has a proxy, and label {injection.CONTROL_PLANE}, annotation {injectable.IDENTITY} and the name that the "
            f"proxy is told do not agree on whether it has an identity",
            hint="have it made anew by the injector",
        )
    # 1. all four
    return proxy


def _name(pod: views.Pod, facts: Facts) -> str:
    account = names.Account(namespace=pod.metadata.namespace, name=pod.account, uid=facts.uid)
    if not facts.enabled:
        raise Withheld(
            Reason.SWITCHED_OFF,
            f"{_title(pod)} has a proxy with an identity, and identities are switched off in the mesh",
            hint=f"annotate it with {injectable.IDENTITY}: {settings.DISABLED} and have it made anew",
        )
    # 5. revoked
    if facts.revoked:
        raise Withheld(
            Reason.REVOKED,
            f"{_title(pod)}, its node, or the account {pod.account} that it runs as is revoked",
            hint="kubectl get revocations shows by which",
        )
    # 7. of the account that it runs as, 5. which can have one
    try:
        return _composed(facts.mesh, account)
    except errors.Refused as refused:
        raise Withheld(Reason.NO_NAME, f"{_title(pod)}: {refused.message}", hint=refused.hint) from None


def _past(pod: views.Pod) -> port_lists.Ports:
    redirect = next((row for row in pod.all_containers if row.name == injectable.INIT), None)
    if redirect is None:
        return port_lists.parse(pod.metadata.annotation(port_annotations.SKIP_INBOUND), _named(pod))
    return port_lists.parse(redirect.argument(sidecar.PAST_PROXY))


# Pods of one account are many: 0.3 µs instead of 9.
@functools.lru_cache(maxsize=1 << 12)
def _composed(mesh: names.Mesh, account: names.Account) -> str:
    return mesh.name(account)


def _port(proxy: views.Container, variable: str) -> int:
    """The port of an address that the proxy listens on; 0 where it is told none."""
    text = proxy.variable(variable).rpartition(":")[2]
    return int(text) if _DIGITS.fullmatch(text) and int(text) <= _LAST_PORT else 0


def _named(item: views.Pod | views.Service) -> Mapping[str, int]:
    """Its ports by name."""
    if isinstance(item, views.Service):
        return {row.name: row.port for row in item.spec.ports or () if row.name}
    rows = (*(item.spec.init_containers or ()), *(item.spec.containers or ()))
    return {port.name: port.container_port for row in rows for port in row.ports or () if port.name}


def _title(pod: views.Pod) -> str:
    return f"Pod {pod.metadata.namespace}/{pod.metadata.name}"
