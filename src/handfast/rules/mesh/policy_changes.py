# SPDX-License-Identifier: Apache-2.0
"""The smallest change of MeshPolicies that turns a verdict, as commands for kubectl. It changes nothing, and judges nobody.

1. To let in a client that no row fits: one row for its account in the first policy that says who. A client without an identity is better
   given one; one that is not in the cluster gets a row for everybody, or the condition goes.
2. To refuse one that a row fits: every row that fits goes. Where nobody is restricted, what is in audit is enforced, if that refuses;
   otherwise there is a new policy for that account and port, with an empty list.
3. A policy that cannot be read is corrected first.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import handfast_kinds, mesh_schemas
from handfast.rules import decision
from handfast.rules.mesh import names, policy
from handfast.rules.mesh import policy_documents as documents

KIND: Final = handfast_kinds.MESH_POLICY


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """Who wants to call what. `identity` is empty for a client without; `account` is None for one that is not in the cluster."""

    target: documents.Target
    port: int
    identity: str
    account: names.Account | None


def opening(
    policies: Sequence[documents.Policy], attempt: Attempt, judgement: policy.Judgement, naming: policy.Naming
) -> Iterator[str]:
    """What lets in a client that is refused (1)."""
    about = [each for each in _about(policies, attempt) if each.enforced]
    broken = [each for each in about if each.problem]
    if broken:
        # 3. corrected first
        yield f"correct {broken[0].problem} of MeshPolicy {broken[0].title}"
        return
    identity = attempt.identity
    if not identity and attempt.account is not None:
        # 1. better given an identity
        yield "give the client an identity: annotate its Pods with linkerd.io/inject: enabled, and have them made anew"
        identity = naming.account(attempt.account.namespace, attempt.account.name)
        if isinstance(policy.judge(policies, attempt.target, identity, attempt.port, naming).verdict, decision.Approve):
            return
    if not identity and judgement.verdict.reason == policy.IDENTITY_REQUIRED:
        yield from (_set(each, "requireIdentity", "inbound") for each in about if each.needs_inbound)
    saying = [each for each in about if each.rows is not None]
    rules = policy.compiled(policies, attempt.target, naming).inbound(attempt.port).enforced
    if saying and rules.permit(identity) is None:
        added = {"op": "add", "path": "/spec/clients/-", "value": _row(identity, saying[0], naming)}
        yield patch(saying[0], added)


def closing(
    policies: Sequence[documents.Policy], attempt: Attempt, judgement: policy.Judgement, naming: policy.Naming
) -> Iterator[str]:
    """What refuses a client that is let in (2)."""
    about = _about(policies, attempt)
    rules = policy.compiled(policies, attempt.target, naming).inbound(attempt.port).enforced
    fitting = [permit for permit in rules.permits if permit.admits(attempt.identity)]
    if fitting:
        for each in about:
            rows = [permit.row for permit in fitting if permit.policy == each.title]
            # From the last on, so that the numbers before it stay.
            removed = [{"op": "remove", "path": f"/spec/clients/{row}"} for row in sorted(rows, reverse=True)]
            yield from [patch(each, *removed)] if removed else []
    elif judgement.audit is not None:
        for each in about:
            if not each.enforced:
                yield patch(each, {"op": "replace", "path": "/spec/mode", "value": mesh_schemas.ENFORCE})
    else:
        taken = {each.name for each in policies if each.namespace == attempt.target.namespace}
        yield f"echo {shlex.quote(_json(_nobody(attempt, taken)))} | kubectl apply -f -"


def without_outbound(policies: Sequence[documents.Policy], source: documents.Target) -> str:
    """What lets a workload talk to servers without an identity."""
    needing = [each for each in policies if each.is_about(source) and each.needs_outbound and each.enforced]
    return "; ".join(_set(each, "requireIdentity", "outbound") for each in sorted(needing, key=lambda each: each.title))


def patch(item: documents.Policy, *operations: dict[str, Any]) -> str:
    """The command that changes a policy."""
    text = shlex.quote(_json(list(operations)))
    return f"kubectl -n {item.namespace} patch {KIND.singular} {item.name} --type=json -p {text}"


def _set(item: documents.Policy, *path: str) -> str:
    return patch(item, {"op": "replace", "path": "/".join(("/spec", *path)), "value": False})


def _about(policies: Sequence[documents.Policy], attempt: Attempt) -> list[documents.Policy]:
    there = documents.bounded(each for each in policies if each.is_about(attempt.target))
    return [each for each in there if each.is_about_port(attempt.target, attempt.port)]


def _row(identity: str, home: documents.Policy, naming: policy.Naming) -> dict[str, Any]:
    """The row for one client: by its account, where the name is one of this mesh."""
    if not identity:
        return {"unauthenticated": True}
    try:
        account = naming.mesh.account(identity)
    except errors.Refused:
        return {"identity": identity}
    where = {} if account.namespace == home.namespace else {"namespace": account.namespace}
    return {"serviceAccount": {**where, "name": account.name}}


def _nobody(attempt: Attempt, taken: set[str]) -> dict[str, Any]:
    wanted = f"{attempt.target.account}-{attempt.port}"
    # One of that name, which is about something else, stays as it is.
    numbered = (f"{wanted}-{number}" for number in range(2, len(taken) + 3))
    name = wanted if wanted not in taken else next(name for name in numbered if name not in taken)
    return {
        "apiVersion": KIND.api_version,
        "kind": KIND.kind,
        "metadata": {"name": name, "namespace": attempt.target.namespace},
        "spec": {"targets": {"serviceAccounts": [attempt.target.account], "ports": [attempt.port]}, "clients": []},
    }


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
