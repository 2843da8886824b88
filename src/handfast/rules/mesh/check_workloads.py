# SPDX-License-Identifier: Apache-2.0
"""Checks of what runs: the services, clocks, accounts, Pods and what agents have reported. It reads nothing.

1. Every door of the control plane has an endpoint that is ready, and takes a connection where it can be asked from here.
2. The clocks agree: a certificate begins by the skew of the settings earlier, and no more than that is forgiven.
3. Accounts of namespaces whose Pods are injected can have a name.
4. A Pod that should have a proxy has one. One that ended is none, nor one whose namespace the webhook leaves alone.
5. A Pod of the mesh has the trust anchors of today: those that its agent has acknowledged, or without an agent those it was injected with, until it is started again.
6. No agent of a Pod that lives has reported a certificate that is over, or that it should have renewed by now: the last tenth of its life is for renewals that went wrong.
7. Nobody was seen within the last hour whom policies in audit would refuse, were they enforced. They refuse nobody now; it is told since when they would.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from handfast import errors
from handfast.api import jsonpath, objects
from handfast.rules import check
from handfast.rules.mesh import (
    check_facts,
    check_trust,
    edges,
    injectable,
    injection,
    names,
    reports,
    settings,
    webhook,
    workloads,
)

# As Linkerd judges a Node's heartbeat.
_SILENT: Final = datetime.timedelta(minutes=5, seconds=10)
# What is rounded in a timestamp.
_ROUNDED: Final = datetime.timedelta(seconds=2)
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_ITS_LOG: Final = "see the log of the agent, and handfast mesh explain"
# What is left of a certificate when its renewal is late.
_LAST_PART: Final = 0.1
# 7. as long as a refused join is told of
_LATELY: Final = datetime.timedelta(hours=1)
WOULD_REFUSE: Final = "PolicyWouldRefuse"
_RESTART: Final = "start these Pods again: kubectl rollout restart"


def checks(facts: check_facts.Facts) -> tuple[check.Check, ...]:
    """All of them, in order."""
    return (
        _services(facts),
        _clocks(facts),
        _accounts(facts),
        _unmeshed(facts),
        _pod_anchors(facts),
        _certificates(facts),
        _would_be_refused(facts),
    )


def _services(facts: check_facts.Facts) -> check.Check:
    name = "services"
    if isinstance(facts.doors, check.Unread):
        return check.unread(name, facts.doors)
    # 1. an endpoint, and an answer
    nowhere = [door for door, known in facts.doors.items() if not known.address and not known.ready]
    silent = [f"{door} at {known.address}" for door, known in facts.doors.items() if known.connects is False]
    if silent:
        said = f"does not answer: {check.several(silent)}"
        return check.Check(
            name, check.Verdict.FAILED, said, "NotAnswering", "see that it runs, and that its address is right"
        )
    if nowhere:
        said = f"has no endpoint that is ready: {check.several(nowhere)}"
        return check.Check(
            name,
            check.Verdict.FAILED,
            said,
            "NoEndpoints",
            "start it, or say where it is: handfast mesh install --endpoint",
        )
    unasked = [door for door, known in facts.doors.items() if known.connects is None]
    more = f"; not asked from here: {check.several(unasked)}" if unasked else ""
    return check.Check(name, check.Verdict.OK, f"each has an address{more}")


def _clocks(facts: check_facts.Facts) -> check.Check:
    name, read = "clock", check_trust.chosen(facts) or settings.Settings()
    if isinstance(facts.ahead, check.Unread):
        return check.unread(name, facts.ahead)
    # 2. within the skew
    if abs(facts.ahead) > read.skew + _ROUNDED:
        seconds = f"{abs(facts.ahead).total_seconds():.0f} s {'ahead' if facts.ahead > _ZERO else 'behind'}"
        said = f"the API server's clock is {seconds} of the one here, and certificates forgive {read.skew.total_seconds():.0f} s"
        return check.Check(name, check.Verdict.FAILED, said, "ClockSkew", "set the clocks, by NTP for instance")
    if isinstance(facts.heartbeats, check.Unread):
        return check.unread(name, facts.heartbeats)
    odd = [
        each.node
        for each in facts.heartbeats
        if each.at > facts.now + read.skew + _ROUNDED or facts.now - each.at > _SILENT
    ]
    return check.about(
        name,
        odd,
        check.Verdict.WARNING,
        "NodeClockSkew",
        lambda rows: f"heard last at a time that cannot be right, or long ago, though ready: {rows}",
        "set the clocks of these nodes",
        "the clocks agree",
    )


def _accounts(facts: check_facts.Facts) -> check.Check:
    name, read = "accounts", check_trust.chosen(facts)
    for rows in (facts.accounts, facts.namespaces):
        if isinstance(rows, check.Unread):
            return check.unread(name, rows)
    if read is None:
        return check.unknown(name, "the settings are not known")
    mesh, injected = read.mesh(facts.namespace), _injected(facts)
    # 3. a name
    nameless = [
        "/".join(_key(row)) for row in _known(facts.accounts) if _key(row)[0] in injected and not _has_name(mesh, row)
    ]
    return check.about(
        name,
        nameless,
        check.Verdict.WARNING,
        "AccountWithoutName",
        lambda rows: f"cannot have an identity: {rows}",
        "use accounts without dots, with shorter names",
        "each can have an identity",
    )


def _unmeshed(facts: check_facts.Facts) -> check.Check:
    name, read = "unmeshed-pods", check_trust.chosen(facts) or settings.Settings()
    for rows in (facts.pods, facts.namespaces):
        if isinstance(rows, check.Unread):
            return check.unread(name, rows)
    values = _values(facts)
    # 4. should have, and has not
    missing = [
        "/".join(_key(pod))
        for pod in _pods(facts)
        if _key(pod)[0] in values and _should_have(pod, values[_key(pod)[0]], own_token=read.own_token)
    ]
    return check.about(
        name,
        missing,
        check.Verdict.WARNING,
        "PodsWithoutProxy",
        lambda rows: f"should have a proxy, and have none: {rows}",
        _RESTART,
        "every Pod that should have a proxy has one",
    )


def _pod_anchors(facts: check_facts.Facts) -> check.Check:
    name, bundle = "pod-anchors", check_trust.anchors(facts)
    if isinstance(facts.pods, check.Unread):
        return check.unread(name, facts.pods)
    if bundle is None:
        return check.unknown(name, "the trust anchors are not known")
    current = hashlib.sha256(bundle.to_pem()).hexdigest()
    learned = _up_to_date(facts, {anchor.fingerprint for anchor in bundle.anchors})
    # 5. the anchors of today
    old = [
        "/".join(_key(pod))
        for pod in _pods(facts)
        if jsonpath.text(pod, "metadata", "labels", injection.CONTROL_PLANE) == facts.namespace
        and jsonpath.text(pod, "metadata", "annotations", injection.ANCHORS) not in {"", current}
        and jsonpath.text(pod, "metadata", "uid") not in learned
    ]
    return check.about(
        name,
        old,
        check.Verdict.WARNING,
        "OldTrustAnchors",
        lambda rows: f"have other trust anchors than the mesh: {rows}",
        _RESTART,
        "every Pod of the mesh has its trust anchors",
    )


def _up_to_date(facts: check_facts.Facts, roots: set[str]) -> set[str]:
    """The UIDs of Pods whose agent has acknowledged these."""
    return {
        jsonpath.text(owner, "uid")
        for row in _known(facts.workloads)
        if {*jsonpath.texts(row, "status", "anchors")} == roots
        for owner in jsonpath.mappings(row, "metadata", "ownerReferences")
    }


def _certificates(facts: check_facts.Facts) -> check.Check:
    name = "workload-certificates"
    if isinstance(facts.workloads, check.Unread):
        return check.unread(name, facts.workloads)
    ended = {_key(pod) for pod in _known(facts.pods) if jsonpath.text(pod, "status", "phase") in _ENDED}
    living = [row for row in facts.workloads if _key(row) not in ended]
    # 6. neither over nor late
    over = ["/".join(_key(row)) for row in living if _ends_by(row, facts.now)]
    if over:
        said = f"last reported a certificate that is over: {check.several(over)}"
        return check.Check(name, check.Verdict.FAILED, said, "WorkloadCertificateExpired", _ITS_LOG)
    lifetime = (check_trust.chosen(facts) or settings.Settings()).lifetime
    return check.about(
        name,
        ["/".join(_key(row)) for row in living if _ends_by(row, facts.now + lifetime * _LAST_PART)],
        check.Verdict.WARNING,
        "WorkloadCertificateLate",
        lambda rows: f"last reported a certificate that should have been renewed by now: {rows}",
        _ITS_LOG,
        f"none of {len(living)} that agents reported is over, or late",
    )


def _would_be_refused(facts: check_facts.Facts) -> check.Check:
    name, read = "audit", check_trust.chosen(facts) or settings.Settings()
    if isinstance(facts.workloads, check.Unread):
        return check.unread(name, facts.workloads)
    mesh = read.mesh(facts.namespace)
    # 7. seen lately, in audit
    since: dict[str, datetime.datetime] = {}
    for server, row in _inbound(facts.workloads):
        if row.would_be_refused and not row.refused and row.last is not None and facts.now - row.last <= _LATELY:
            client = edges.title(row.peer, mesh) if row.peer else "somebody without an identity"
            title = f"{client} to {edges.title(server, mesh)}:{row.port}"
            began = row.first or row.last
            since[title] = min(began, since.get(title, began))
    if not since:
        return check.Check(name, check.Verdict.OK, "no call of the last hour would be refused by policies in audit")
    said = f"called within the last hour, and would be refused if policies in audit were enforced: {check.several(sorted(since))}"
    hint = "allow them before you enforce those policies: handfast mesh edges --would-deny"
    return check.Check(name, check.Verdict.WARNING, said, WOULD_REFUSE, hint, since=min(since.values()))


def _inbound(rows: Sequence[objects.Document]) -> Iterator[tuple[str, edges.Reported]]:
    """What servers have reported, with who they are."""
    for document in rows:
        if (workload := edges.read(document)) is not None:
            yield from ((workload.identity, row) for row in workload.edges if row.direction == reports.INBOUND)


_ZERO: Final = datetime.timedelta()


def _known(rows: Sequence[objects.Document] | check.Unread) -> Sequence[objects.Document]:
    return () if isinstance(rows, check.Unread) else rows


def _pods(facts: check_facts.Facts) -> Iterator[objects.Document]:
    return (pod for pod in _known(facts.pods) if jsonpath.text(pod, "status", "phase") not in _ENDED)


def _values(facts: check_facts.Facts) -> dict[str, str]:
    """Namespace -> its annotation, of those that the webhook is asked about."""
    left_alone = {*webhook.LEFT_ALONE, facts.namespace}
    return {
        _key(row)[1]: jsonpath.text(row, "metadata", "annotations", injectable.INJECT)
        for row in _known(facts.namespaces)
        if _key(row)[1] not in left_alone
        and jsonpath.text(row, "metadata", "labels", webhook.LABEL) != settings.DISABLED
    }


def _injected(facts: check_facts.Facts) -> frozenset[str]:
    return frozenset(name for name, value in _values(facts).items() if value == settings.ENABLED)


def _should_have(pod: objects.Document, value: str, *, own_token: bool) -> bool:
    try:
        workload = workloads.find({"apiVersion": "v1", "kind": "Pod", **pod})
    except errors.Refused:
        return False
    return workload is not None and not injectable.reasons(
        injectable.facts(workload, namespace=value, by_request=True, own_token=own_token)
    )


def _has_name(mesh: names.Mesh, row: Mapping[str, Any]) -> bool:
    space, own = _key(row)
    try:
        mesh.name(names.Account(namespace=space, name=own, uid=jsonpath.text(row, "metadata", "uid")))
    except errors.Refused:
        return False
    return True


def _ends_by(row: objects.Document, at: datetime.datetime) -> bool:
    try:
        return objects.parse_timestamp(jsonpath.text(row, "status", "certificate", "notAfter")) <= at
    except (ValueError, errors.HandfastError):
        return False


def _key(row: Mapping[str, Any]) -> tuple[str, str]:
    return jsonpath.text(row, "metadata", "namespace"), jsonpath.text(row, "metadata", "name")
