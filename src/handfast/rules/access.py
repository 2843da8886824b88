# SPDX-License-Identifier: Apache-2.0
"""May this caller do this: the authoriser until RBAC stands beside it. It does not authenticate; see the API server.

The rows of `ROWS` are asked in order; the first that has an opinion decides; when none has, the answer is no.

1. Members of `system:masters` may do everything: the holder of admin.conf.
2. `system:kube-controller-manager` may do everything to resources and read discovery: the controllers' credential.
3. Anyone may read the open paths: health and version, which tell nothing about the cluster's contents.
4. Everyone else: no opinion, which is a refusal.

| who | holding | tries | stopped by | shown in tests/unit/rules/test_access.py |
|---|---|---|---|---|
| anyone on the network | nothing | read or write an object, discovery, metrics | no row allows it | test_anonymous_is_refused |
| a holder of a certificate of this CA | CN and O of their own | act as an administrator | 1 compares whole group names | test_unknown_user_is_refused |
| the controllers' process, taken over | controllers.conf | read /metrics, /debug | 2 covers resources and discovery only | test_controllers |
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from handfast.rules import decision

ANONYMOUS = "system:anonymous"
MASTERS = "system:masters"
CONTROLLERS = "system:kube-controller-manager"

OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version")
DISCOVERY_PATHS = ("/api", "/apis", "/openapi")


class Attributes(msgspec.Struct, frozen=True):
    """The facts of a request that access is decided by. A Struct, because one is made for every request."""

    user: str
    groups: tuple[str, ...]
    verb: str
    is_resource: bool
    path: str = ""
    group: str = ""
    version: str = ""
    plural: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


def _below(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or path.startswith(root + "/") for root in roots)


def _open_path(asked: Attributes) -> bool:
    return not asked.is_resource and asked.verb in {"get", "head"} and _below(asked.path, OPEN_PATHS)


def _masters(asked: Attributes) -> bool:
    return MASTERS in asked.groups


def _controllers(asked: Attributes) -> bool:
    if asked.user != CONTROLLERS:
        return False
    return asked.is_resource or (asked.verb == "get" and _below(asked.path, DISCOVERY_PATHS))


ROWS: tuple[tuple[Callable[[Attributes], bool], decision.Approve], ...] = (
    (_masters, decision.Approve("SystemMasters", "member of system:masters", "access")),
    (_controllers, decision.Approve("Controllers", "the controllers' own credential", "access")),
    (_open_path, decision.Approve("OpenPath", "the path is open to everyone", "access")),
)


def decide(asked: Attributes) -> decision.Approve | decision.NotMine:
    """The first row with an opinion, or no opinion with the sentence Kubernetes would say."""
    for applies, verdict in ROWS:
        if applies(asked):
            return verdict
    return decision.NotMine("NoRuleAllows", refusal(asked), "access")


def refusal(asked: Attributes) -> str:
    """Kubernetes' wording of a 403, without the object's name in front."""
    if not asked.is_resource:
        return f'User "{asked.user}" cannot {asked.verb} path "{asked.path}"'
    resource = f"{asked.plural}/{asked.subresource}" if asked.subresource else asked.plural
    scope = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    return f'User "{asked.user}" cannot {asked.verb} resource "{resource}" in API group "{asked.group}" {scope}'
