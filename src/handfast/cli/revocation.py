# SPDX-License-Identifier: Apache-2.0
"""Writes and deletes Revocations over the API; revokes a node, or undoes that. It prints nothing: see `node`, and `mesh_revoke`.

1. The Revocation of a node is named `node-NAME`. One that is there is changed to say what was asked; what else it names
   stays. Asking twice changes nothing the second time.
2. Without a reason, the one that is there stays. Without an end, the Revocation has none, even if it had one.
3. Undoing deletes it. Other Revocations that name the node stay as they are, and are listed.
4. Whether there is a Node of that name is looked up for the answer. It decides nothing: a node may be revoked before it
   joins, and after it was removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import handfast_kinds, jsonpath, objects, resources, status
from handfast.cli import output
from handfast.client import api
from handfast.rules import revocation as rules

KIND: Final = handfast_kinds.REVOCATION
_PREFIX: Final = "node-"
_MAX_NAME: Final = 253
_TRIES: Final = 5


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What is so now. `known`: whether there is such a Node, None if we may not know; `others`: Revocations that name it."""

    node: str
    revocation: str
    revoked: bool
    changed: bool
    reason: str = ""
    expires: str = ""
    known: bool | None = None
    others: Sequence[str] = ()


def require_node_name(node: str) -> None:
    """There can be such a node; a usage error otherwise."""
    if objects.dns_subdomain(node) is not None:
        raise output.Usage(
            f'"{node[:_MAX_NAME]}" is no name of a node: {objects.SUBDOMAIN_WORDS}',
            reason="BadNodeName",
            hint="give the name as `kubectl get nodes` shows it, without system:node: or node/ in front",
        )


def name_of(node: str) -> str:
    """What the Revocation of a node is called."""
    require_node_name(node)
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
    spec, changed = await put(client, name, {"node": node}, reason, expires)
    return Outcome(
        node=node,
        revocation=name,
        revoked=True,
        changed=changed,
        reason=jsonpath.text(spec, "reason"),
        expires=jsonpath.text(spec, "expires"),
        known=await _is_known(client, node),
    )


async def put(
    client: api.Client, name: str, target: Mapping[str, Any], reason: str, expires: str
) -> tuple[dict[str, Any], bool]:
    """Have the Revocation of this name there, for these fields of its spec (1, 2); its spec, and whether that is new."""
    for _ in range(_TRIES):
        try:
            return await _put(client, name, target, reason, expires)
        except status.StatusError as error:
            # Someone else wrote it at the same time: look at what they wrote.
            if error.reason not in {"AlreadyExists", "Conflict"}:
                raise
    raise errors.Unavailable(f'others keep writing Revocation "{name}"', reason="Conflict")


async def _put(
    client: api.Client, name: str, target: Mapping[str, Any], reason: str, expires: str
) -> tuple[dict[str, Any], bool]:
    existing = await client.find(KIND, name)
    before = {} if existing is None else jsonpath.mapping(existing, "spec")
    wanted = {key: value for key, value in before.items() if key != "expires"} | dict(target)
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
    changed, others = await remove(client, name, {"node": node})
    return Outcome(node=node, revocation=name, revoked=False, changed=changed, others=others)


async def remove(client: api.Client, name: str, target: Mapping[str, Any]) -> tuple[bool, list[str]]:
    """Delete a Revocation (3): whether it was there, and which others name somebody that these fields of a spec name."""
    changed = False
    with api.MISSING_OK:
        await client.delete(KIND, name)
        changed = True
    wanted = set(rules.read({"spec": target}).targets())
    listed = await all_of(client)
    others = [each.name for each in listed if each.name != name and not wanted.isdisjoint(each.targets())]
    return changed, others


async def all_of(client: api.Client) -> list[rules.Revocation]:
    """Every Revocation; none where they may not be listed."""
    try:
        return [rules.read(document) for document in await client.list(KIND)]
    except status.StatusError as error:
        if error.reason in {"Forbidden", "NotFound"}:
            return []
        raise


async def _is_known(client: api.Client, node: str) -> bool | None:
    try:
        return await client.find(resources.NODES, node, metadata=True) is not None
    except status.StatusError as error:
        # Who may revoke need not be allowed to read nodes.
        if error.reason == "Forbidden":
            return None
        raise
