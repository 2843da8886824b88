# SPDX-License-Identifier: Apache-2.0
"""Revokes a node over the API, or undoes that. It prints nothing: see `node`.

1. The Revocation of a node is named `node-NAME`. One that is there is changed to say what was asked; what else it names
   stays. Asking twice changes nothing the second time.
2. Without a reason, the one that is there stays. Without an end, the Revocation has none, even if it had one.
3. Undoing deletes it. Other Revocations that name the node stay as they are, and are listed.
4. Whether there is a Node of that name is looked up for the answer. It decides nothing: a node may be revoked before it
   joins, and after it was removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from handfast import errors
from handfast.api import handfast_kinds, jsonpath, objects, resources, status
from handfast.cli import output
from handfast.client import api
from handfast.rules import user_names

KIND: Final = handfast_kinds.REVOCATION
_PREFIX: Final = "node-"
_MAX_NAME: Final = 253
_TRIES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What is so now. `known`: whether there is such a Node, None if we may not know; `others`: Revocations that name it."""

    node: str
    revocation: str
    revoked: bool
    changed: bool
    reason: str = ""
    expires: str = ""
    known: bool | None = None
    others: Sequence[str] = ()


def name_of(node: str) -> str:
    """What the Revocation of a node is called; Refused if there can be no such node."""
    if objects.dns_subdomain(node) is not None:
        raise output.Usage(
            f'"{node[:_MAX_NAME]}" is no name of a node: {objects.SUBDOMAIN_WORDS}',
            reason="BadNodeName",
            hint="give the name as `kubectl get nodes` shows it, without system:node: or node/ in front",
        )
    if len(_PREFIX + node) > _MAX_NAME:
        raise output.Usage(
            f'"{node}" is too long: the Revocation would be named "{_PREFIX}{node}", of more than {_MAX_NAME} characters',
            reason="BadNodeName",
            hint="create a Revocation of another name, whose spec.node is the node",
        )
    return _PREFIX + node


async def revoke(client: api.Client, node: str, reason: str, expires: str) -> Outcome:
    """Refuse a node from now on; `reason` and `expires` may be empty (2)."""
    name = name_of(node)
    for _ in range(_TRIES):
        try:
            spec, changed = await _put(client, name, node, reason, expires)
        except status.StatusError as error:
            # Someone else wrote it at the same time: look at what they wrote.
            if error.reason in {"AlreadyExists", "Conflict"}:
                continue
            raise
        return Outcome(
            node=node,
            revocation=name,
            revoked=True,
            changed=changed,
            reason=jsonpath.text(spec, "reason"),
            expires=jsonpath.text(spec, "expires"),
            known=await _is_known(client, node),
        )
    raise errors.Unavailable(f'others keep writing Revocation "{name}"', reason="Conflict")


async def _put(client: api.Client, name: str, node: str, reason: str, expires: str) -> tuple[dict[str, Any], bool]:
    """Have the Revocation there (1); its spec, and whether that is new."""
    existing = await client.find(KIND, name)
    before = {} if existing is None else jsonpath.mapping(existing, "spec")
    wanted = {key: value for key, value in before.items() if key != "expires"} | {"node": node}
    wanted |= {key: value for key, value in (("reason", reason), ("expires", expires)) if value}
    if existing is None:
        head = {"apiVersion": KIND.api_version, "kind": KIND.kind, "metadata": {"name": name}}
        return jsonpath.mapping(await _create(client, {**head, "spec": wanted}), "spec"), True
    if wanted == before:
        return before, False
    return jsonpath.mapping(await client.update(KIND, {**existing, "spec": wanted}), "spec"), True


async def _create(client: api.Client, document: dict[str, Any]) -> objects.Document:
    try:
        return await client.create(KIND, document)
    except status.StatusError as error:
        if error.reason != "NotFound":
            raise
        raise errors.Refused(
            f"this API server does not serve {KIND.plural}.{KIND.group}",
            reason="NoRevocations",
            hint="only a Handfast API server refuses by them; choose its kubeconfig with --kubeconfig",
        ) from None


async def undo(client: api.Client, node: str) -> Outcome:
    """Let a node in again (3)."""
    name = name_of(node)
    changed = False
    with api.MISSING_OK:
        await client.delete(KIND, name)
        changed = True
    return Outcome(node=node, revocation=name, revoked=False, changed=changed, others=await _others(client, name, node))


async def _others(client: api.Client, name: str, node: str) -> list[str]:
    """Which other Revocations name the node."""
    user = user_names.node_user(node)
    try:
        revocations = await client.list(KIND)
    except status.StatusError as error:
        if error.reason in {"Forbidden", "NotFound"}:
            return []
        raise
    return [
        each["metadata"]["name"]
        for each in revocations
        if each["metadata"]["name"] != name
        and (jsonpath.text(each, "spec", "node") == node or jsonpath.text(each, "spec", "user") == user)
    ]


async def _is_known(client: api.Client, node: str) -> bool | None:
    try:
        return await client.find(resources.NODES, node, metadata=True) is not None
    except status.StatusError as error:
        # Who may revoke need not be allowed to read nodes.
        if error.reason == "Forbidden":
            return None
        raise
