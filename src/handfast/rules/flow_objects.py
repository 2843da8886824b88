# SPDX-License-Identifier: Apache-2.0
"""The limits in force as FlowSchemas and PriorityLevelConfigurations, so that stock tools can show them.

They are documents to read: `rules.flow` decides which budget a request falls under, and nothing is decided by these. A budget here
is a rate with a burst and not a share of concurrent requests, so its numbers are in annotations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from handfast.api import signing_requests
from handfast.bootstrap import tokens
from handfast.rules import access, flow, user_names

RATE: Final = "handfast.dev/requests-per-second"
BURST: Final = "handfast.dev/requests-at-once"
_GROUP: Final = "flowcontrol.apiserver.k8s.io"
_API_VERSION: Final = f"{_GROUP}/v1"
_STEP: Final = 100
_ALL_RESOURCES: Final = {
    "verbs": ["*"],
    "apiGroups": ["*"],
    "resources": ["*"],
    "clusterScope": True,
    "namespaces": ["*"],
}
_ALL_PATHS: Final = {"verbs": ["*"], "nonResourceURLs": ["*"]}


def _group(name: str) -> dict[str, Any]:
    return {"kind": "Group", "group": {"name": name}}


_CERTIFICATES: Final = {
    "verbs": ["create", "get", "list", "watch"],
    "apiGroups": [signing_requests.GROUP],
    "resources": ["certificatesigningrequests"],
    "clusterScope": True,
}
_, _, _MESH_SPACE, _MESH_NAME = user_names.MESH_IDENTITY.split(":")
_HEALTH: Final = {"verbs": ["*"], "nonResourceURLs": sorted(f"{path}*" for path in ("/healthz", "/livez", "/readyz"))}

# In the order in which they are asked: the flow, whom it is about, and what they ask.
_ROWS: Final[tuple[tuple[str, tuple[dict[str, Any], ...], dict[str, Any]], ...]] = (
    (
        flow.EXEMPT,
        (_group(access.MASTERS), {"kind": "User", "user": {"name": user_names.CONTROLLERS}}),
        {"resourceRules": [_ALL_RESOURCES], "nonResourceRules": [_ALL_PATHS]},
    ),
    (flow.HEALTH, (_group(user_names.UNAUTHENTICATED),), {"nonResourceRules": [_HEALTH]}),
    (
        flow.ANONYMOUS,
        (_group(user_names.UNAUTHENTICATED),),
        {"resourceRules": [_ALL_RESOURCES], "nonResourceRules": [_ALL_PATHS]},
    ),
    (
        flow.JOIN,
        (_group(tokens.DEFAULT_GROUP),),
        {"resourceRules": [_ALL_RESOURCES], "nonResourceRules": [_ALL_PATHS]},
    ),
    (flow.RENEWAL, (_group(user_names.NODES),), {"resourceRules": [_CERTIFICATES]}),
    (
        flow.NODE,
        (_group(user_names.NODES), _group(user_names.NODE_RECOVERY)),
        {"resourceRules": [_ALL_RESOURCES], "nonResourceRules": [_ALL_PATHS]},
    ),
    (
        flow.MESH_IDENTITY,
        ({"kind": "ServiceAccount", "serviceAccount": {"namespace": _MESH_SPACE, "name": _MESH_NAME}},),
        {"resourceRules": [_ALL_RESOURCES], "nonResourceRules": [_ALL_PATHS]},
    ),
    (
        flow.SERVICE_ACCOUNT,
        (_group(user_names.SERVICE_ACCOUNTS),),
        {"resourceRules": [_ALL_RESOURCES], "nonResourceRules": [_ALL_PATHS]},
    ),
    (
        flow.USER,
        (_group(user_names.AUTHENTICATED),),
        {"resourceRules": [_ALL_RESOURCES], "nonResourceRules": [_ALL_PATHS]},
    ),
)


def schemas() -> Sequence[dict[str, Any]]:
    """Who falls under which budget, in the order in which that is decided."""
    return [
        {
            "apiVersion": _API_VERSION,
            "kind": "FlowSchema",
            "metadata": {"name": name},
            "spec": {
                "priorityLevelConfiguration": {"name": name},
                "matchingPrecedence": _STEP * (position + 1),
                "distinguisherMethod": {"type": "ByUser"},
                "rules": [{"subjects": list(subjects), **rules}],
            },
            "status": {"conditions": [{"type": "Dangling", "status": "False", "reason": "Found"}]},
        }
        for position, (name, subjects, rules) in enumerate(_ROWS)
    ]


def levels(budgets: Mapping[str, tuple[float, int]]) -> Sequence[dict[str, Any]]:
    """What each budget allows: (requests a second, requests at once), by flow. One without numbers is not limited."""
    return [_level(name, budgets.get(name)) for name, _, _ in _ROWS]


def _level(name: str, budget: tuple[float, int] | None) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name}
    spec: dict[str, Any] = {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}}
    if budget is not None:
        metadata["annotations"] = {RATE: f"{budget[0]:g}", BURST: str(budget[1])}
        limited = {"nominalConcurrencyShares": 0, "lendablePercent": 0, "limitResponse": {"type": "Reject"}}
        spec = {"type": "Limited", "limited": limited}
    return {"apiVersion": _API_VERSION, "kind": "PriorityLevelConfiguration", "metadata": metadata, "spec": spec}
