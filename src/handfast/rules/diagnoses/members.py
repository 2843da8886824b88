# SPDX-License-Identifier: Apache-2.0
"""Checks of those who come and stay: certificate requests, nodes, what all nodes may, machines. It reads nothing.

1. No request waits for a person. One that a controller should have acted on a minute ago means that the controller does not.
2. No node's certificate is over, or late (`nodes.overview`). One that is silent, or waits, is a warning.
3. RBAC gives the group of all nodes nothing beyond what lets them renew: the node authorizer gives each node its own.
4. No Machine has failed, lost its node, or has no name by which it could be let in.
"""

from __future__ import annotations

import collections
import datetime
import shlex
from typing import Final

from handfast.api import jsonpath, objects
from handfast.api.printing import ages
from handfast.rules import check, request_explanation, user_names
from handfast.rules.diagnoses import facts
from handfast.rules.machines import listing
from handfast.rules.nodes import overview

_OK: Final = check.Verdict.OK
_WARNING: Final = check.Verdict.WARNING
_FAILED: Final = check.Verdict.FAILED
# How long a controller may take.
PATIENCE: Final = datetime.timedelta(minutes=1)
_BY_ITSELF: Final = frozenset({request_explanation.APPROVING, request_explanation.SIGNING})
_SETTLED: Final = frozenset({"Denied", "Failed"})
# What lets nodes renew, and what kubeadm lets them read.
_RENEWALS: Final = ("selfnodeclient", "selfnodeserver")
_ROLES: Final = frozenset({"system:node", "system:discovery", "system:basic-user", "system:public-info-viewer"})
_KUBEADM: Final = "kubeadm:"
_URGENT: Final = frozenset({overview.State.EXPIRED, overview.State.LATE})
_ASKING: Final = frozenset({overview.State.WAITING, overview.State.RECOVERING})
_NO_LEDGER: Final = (
    "have Handfast's controllers sign there, which keep a ledger: `handfast serve controllers --print-manifest`"
)
_TROUBLED: Final = frozenset({listing.FAILED, listing.NODE_GONE, listing.NO_NAME})


def requests(known: facts.Facts) -> check.Check:
    name, read = "requests", known.requests
    if isinstance(read, check.Unread):
        return check.unread(name, read)
    open_ones = [each for each in read.documents if is_open(each)]
    stuck: list[str] = []
    # Name -> why it waits. A name may have anything in it but a slash and a percent sign.
    waiting: dict[str, str] = {}
    for each in open_ones:
        title = jsonpath.text(each, "metadata", "name")
        why = read.explanations.get(title)
        if why is not None and why.verdict in _BY_ITSELF and all(one.passed for one in why.checks):
            # 1. a controller does not act
            stuck += [f"{title}: {why.verdict}"] if _age(each, known.now) > PATIENCE else []
        else:
            waiting[title] = "not explained" if why is None else why.sentence
    if stuck:
        said = f"nobody acts on requests that wait for nothing else: {check.several(stuck)}"
        return check.Check(name, _FAILED, said, "RequestsNotActedOn", "see that approver and signer run, and may do it")
    if waiting:
        told = [f"{title}: {why}" for title, why in waiting.items()]
        said = "; ".join((f"{len(waiting)} wait for somebody: {check.several(told)}", *read.unread))
        first = shlex.quote(next(iter(waiting)))
        return check.Check(name, _WARNING, said, "RequestsWait", f"handfast csr explain {first}")
    return check.Check(name, _OK, "none waits")


def is_open(document: objects.Document) -> bool:
    """Whether a request is not settled: it has no certificate, and was neither denied nor has failed."""
    types = {row.get("type") for row in jsonpath.mappings(document, "status", "conditions")}
    return not jsonpath.text(document, "status", "certificate") and not types & _SETTLED


def _age(document: objects.Document, now: datetime.datetime) -> datetime.timedelta:
    created = ages.instant(jsonpath.text(document, "metadata", "creationTimestamp"))
    return datetime.timedelta() if created is None else now - created


def nodes(known: facts.Facts) -> check.Check:
    name, read = "nodes", known.nodes
    if isinstance(read, check.Unread):
        return check.unread(name, read)
    standing = read if isinstance(read, overview.Standing) else overview.standing(read, known.now)
    counts, needing = standing.counts, standing.needing
    # 2. by their states, the worst first
    said = ", ".join(f"{counts[state]} {state}" for state in overview.ORDER if counts[state])
    if not said and not known.hidden:
        return check.Check(name, _OK, "there are none")
    if not needing:
        # What is not known could hide one that is late.
        return not_known(name, known) if known.hidden else check.Check(name, _OK, said)
    total = sum(count for state, count in counts.items() if state not in overview.CALM)
    told = f"{said}; {check.several([f'{row.name}: {row.problem}' for row in needing], total)}"
    first = needing[0]
    if first.state in _URGENT:
        reason = "CertificateExpired" if first.state is overview.State.EXPIRED else "RenewalLate"
        return check.Check(name, _FAILED, told, reason, first.next_step)
    reason = "NodeWaits" if first.state in _ASKING else "NodeSilent"
    return check.Check(name, _WARNING, told, reason, first.next_step)


def not_known(name: str, known: facts.Facts) -> check.Check:
    """A check that lacks what is hidden of nodes."""
    hint = _NO_LEDGER if overview.NO_LEDGER in known.hidden else ""
    return check.unread(name, check.Unread(check.several(known.hidden), hint=hint))


def node_rights(known: facts.Facts) -> check.Check:
    name, bindings = "node-rights", known.bindings
    if isinstance(bindings, check.Unread):
        return check.unread(name, bindings)
    # 3. nothing more than renewals
    more = [_title(each) for each in bindings if _is_to_nodes(each) and not _is_usual(each)]
    return check.about(
        name,
        more,
        _WARNING,
        "NodesMayMore",
        lambda rows: f"every node gets more than its own by {rows}",
        f"take the group {user_names.NODES} out of them: a stolen node would have it, too",
        f"no binding gives {user_names.NODES} more than it needs",
    )


def _is_to_nodes(binding: objects.Document) -> bool:
    return any(
        row.get("kind") == "Group" and row.get("name") == user_names.NODES
        for row in jsonpath.mappings(binding, "subjects")
    )


def _is_usual(binding: objects.Document) -> bool:
    role = jsonpath.text(binding, "roleRef", "name")
    return role in _ROLES or role.endswith(_RENEWALS) or role.startswith(_KUBEADM)


def _title(binding: objects.Document) -> str:
    meta = jsonpath.mapping(binding, "metadata")
    space = jsonpath.text(meta, "namespace")
    return f"{space}/{jsonpath.text(meta, 'name')}" if space else jsonpath.text(meta, "name")


def machines(known: facts.Facts) -> check.Check:
    name, read = "machines", known.machines
    if isinstance(read, check.Unread):
        return check.unread(name, read)
    if read is None:
        return check.Check(name, _OK, "this cluster has no kind of Machine")
    counts = collections.Counter(each.state for each in read)
    said = ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "none is declared"
    # 4. those that need somebody
    troubled = [f"{each.title}: {each.state}" for each in read if each.state in _TROUBLED]
    if troubled:
        named = next(each.title for each in read if each.state in _TROUBLED)
        hint = f"handfast machine explain {shlex.quote(named.removeprefix('Machine '))}"
        return check.Check(name, _WARNING, f"{said}; {check.several(troubled)}", "MachineNeedsSomebody", hint)
    return check.Check(name, _OK, said)
