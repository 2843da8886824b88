# SPDX-License-Identifier: Apache-2.0
"""May this caller do this: the authorizers in order, and the words of a refusal. It does not authenticate.

1. What a credential's scopes leave out is refused, whoever has it (`rbac.scopes`). Where nobody can judge scopes, it is refused
   that there are any.
2. Members of `system:masters` may do everything: the holder of admin.conf. No rule can take that away.
3. Anyone may ask whether the server is well: probes must work whatever the policy says.
4. Each authorizer is asked in order (`nodes.recovery`, `nodes.authorizer`, then `rbac.policy`); the first that says yes or no
   decides.
5. When none has an opinion, the answer is no, with every reason that was given.

| who | holding | tries | stopped by | shown in tests/unit/rules/test_access.py |
|---|---|---|---|---|
| anyone on the network | nothing | read or write an object, discovery, metrics | 5 | test_anonymous_is_refused |
| a holder of a certificate of this CA | CN and O of their own | act as an administrator | 2 compares whole group names | test_unknown_user_is_refused |
| a caller | a path like /healthz/../metrics | read more than health | 3 compares whole segments | test_only_health_is_open |
| an administrator's script | a credential with scopes | do what an administrator may | 1 comes first | test_scopes_limit_administrators |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from handfast.rules import decision

# The key of a user's extra that limits what it may do.
SCOPES = "scopes.authorization.openshift.io"
ANONYMOUS = "system:anonymous"
MASTERS = "system:masters"
HEALTH_PATHS = ("/healthz", "/livez", "/readyz")
_BELOW_HEALTH = tuple(f"{path}/" for path in HEALTH_PATHS)


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
    # The exact equalities of a list's or watch's field selector, as in `spec.nodeName=node-1`.
    fields: tuple[tuple[str, str], ...] = ()
    # Of the user's extra, what is decided by: the rest differs with each credential, and answers are remembered by this.
    scopes: tuple[str, ...] = ()


# An authorizer, for those who only ask it.
Ask = Callable[[Attributes], decision.Decision]


class Authorizer(Protocol):
    """Has an opinion on some requests."""

    def decide(self, attributes: Attributes) -> decision.Decision: ...


_MASTERS = decision.Approve("SystemMasters", "member of system:masters", "access")
_NO_SCOPES = decision.Deny(
    "ScopeLimited", "scopes are not judged here, so that a credential with any may do nothing", "access"
)
_HEALTH = decision.Approve("OpenPath", "health is open to everyone", "access")


def is_health(path: str) -> bool:
    """Whether a path asks how the server is; no segment may lead out of it again."""
    if path not in HEALTH_PATHS and not path.startswith(_BELOW_HEALTH):
        return False
    return ".." not in path and "%" not in path


class Authorizers:
    """The authorizers of a server, in order."""

    def __init__(self, rows: Sequence[Authorizer], scopes: Authorizer | None = None) -> None:
        self._rows = tuple(rows)
        self._scopes = scopes

    def decide(self, attributes: Attributes) -> decision.Decision:
        """The first opinion. Where nobody has one: no opinion, with all that the authorizers said."""
        # 1. scopes, before anybody is an administrator
        if attributes.scopes:
            limit = _NO_SCOPES if self._scopes is None else self._scopes.decide(attributes)
            if isinstance(limit, decision.Deny):
                return limit
        # 2. administrators
        if MASTERS in attributes.groups:
            return _MASTERS
        # 3. health is open to everyone
        if not attributes.is_resource and attributes.verb in {"get", "head"} and is_health(attributes.path):
            return _HEALTH
        # 4. the first authorizer with an opinion
        said = []
        for row in self._rows:
            verdict = row.decide(attributes)
            if not isinstance(verdict, decision.NotMine):
                return verdict
            if verdict.sentence:
                said.append(verdict)
        # 5. none has one: no, with every reason that was given
        reason = said[0].reason if said else "NoRuleAllows"
        return decision.NotMine(reason, "\n".join(verdict.sentence for verdict in said), "access")


def refusal(attributes: Attributes, verdict: decision.Deny | decision.NotMine) -> str:
    """Kubernetes' wording of a 403, without the object's name in front."""
    return f"{_cannot(attributes)}: {verdict.sentence}" if verdict.sentence else _cannot(attributes)


def _cannot(attributes: Attributes) -> str:
    if not attributes.is_resource:
        return f'User "{attributes.user}" cannot {attributes.verb} path "{attributes.path}"'
    resource = f"{attributes.plural}/{attributes.subresource}" if attributes.subresource else attributes.plural
    scope = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    return f'User "{attributes.user}" cannot {attributes.verb} resource "{resource}" in API group "{attributes.group}" {scope}'
