# SPDX-License-Identifier: Apache-2.0
"""Which budget does a request fall under? It names the flow; it knows no numbers and counts nothing: see the API server.

The first row of `CALLERS` that applies gives the caller's flow; then the request may give it another:

1. `exempt`: members of `system:masters`, and the control plane's own controllers. Nobody may lock the operator out.
2. `anonymous`: who has not logged in.
3. `join`: members of `system:bootstrappers`, that is bootstrap tokens. This comes before `node`, so that nobody who is
   both can choose.
4. `node`: `system:node:…` in the group `system:nodes`, and nodes that recover. Asking for, and waiting for, a certificate
   is `renewal`: a budget of its own, which neither joins nor the node's other work can use up.
5. `mesh-identity`: the account of the mesh's identity service, which has a token reviewed and an entry written for each certificate
   of a workload. It is told by its name, in the usual namespace of the mesh.
6. `service-account`: `system:serviceaccount:…` in the group `system:serviceaccounts`.
7. `user`: everyone else.

A health path is `exempt` for whoever has logged in; for strangers it is `health`, apart from what else they ask.

| who | holding | tries | stopped by | shown in tests/unit/rules/test_flow.py |
|---|---|---|---|---|
| a holder of a bootstrap token | a flood of joins | use up what renewals need | 3 and 4 are apart | test_joins_and_renewals_are_apart |
| a user | a name like a node's | the renewals' budget | 4: name and group | test_name_alone_is_no_node |
| a tenant | an account called `linkerd-identity` elsewhere | the identity service's budget | 5: the whole name | test_the_identity_service_is_told_by_its_whole_name |
| a user | a certificate with `system:unauthenticated` | not to be counted as a user | 2 looks for `system:authenticated` | test_only_who_has_not_logged_in_is_anonymous |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from handfast.bootstrap import tokens
from handfast.rules import access, user_names

EXEMPT: Final = "exempt"
RENEWAL: Final = "renewal"
NODE: Final = "node"
JOIN: Final = "join"
MESH_IDENTITY: Final = "mesh-identity"
SERVICE_ACCOUNT: Final = "service-account"
USER: Final = "user"
ANONYMOUS: Final = "anonymous"
HEALTH: Final = "health"

_RENEWAL_VERBS = frozenset({"create", "get", "list", "watch"})

CALLERS: tuple[tuple[str, Callable[[str, tuple[str, ...]], bool]], ...] = (
    # 1. the operator and the controllers
    (EXEMPT, lambda name, groups: access.MASTERS in groups or name == user_names.CONTROLLERS),
    # 2. who has not logged in
    (ANONYMOUS, lambda _name, groups: user_names.AUTHENTICATED not in groups),
    # 3. bootstrap tokens
    (JOIN, lambda _name, groups: tokens.DEFAULT_GROUP in groups),
    # 4. nodes, and nodes that recover
    (
        NODE,
        lambda name, groups: user_names.node(name, groups) is not None or user_names.NODE_RECOVERY in groups,
    ),
    # 5. the mesh's identity service
    (
        MESH_IDENTITY,
        lambda name, groups: name == user_names.MESH_IDENTITY and user_names.SERVICE_ACCOUNTS in groups,
    ),
    # 6. service accounts
    (
        SERVICE_ACCOUNT,
        lambda name, groups: (
            name.startswith(user_names.SERVICE_ACCOUNT_PREFIX) and user_names.SERVICE_ACCOUNTS in groups
        ),
    ),
)


def of_caller(name: str, groups: tuple[str, ...]) -> str:
    """The flow of a caller, whatever they ask; worth remembering, as it never changes for the same name and groups."""
    for flow, applies in CALLERS:
        if applies(name, groups):
            return flow
    # 7. everyone else
    return USER


def of_resource(caller: str, verb: str, group: str, plural: str, subresource: str) -> str:
    """The flow of a request for a resource, by a caller of the flow `caller`."""
    # 4. a node's certificates are a budget of their own
    if (
        caller == NODE
        and plural == "certificatesigningrequests"
        and group == "certificates.k8s.io"
        and not subresource
        and verb in _RENEWAL_VERBS
    ):
        return RENEWAL
    return caller


def of_path(caller: str, path: str) -> str:
    """The flow of a request for a path that is no resource; `path` may have a query behind it."""
    if access.is_health(path.partition("?")[0]):
        return HEALTH if caller == ANONYMOUS else EXEMPT
    return caller
