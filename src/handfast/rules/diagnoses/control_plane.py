# SPDX-License-Identifier: Apache-2.0
"""Checks of what runs: controllers, other roles, the rights of controllers, the store, webhooks. It asks nobody.

1. The controllers say that they are ready, where somebody here knows where they are asked; and their Lease, where they take turns, was renewed in time.
   Where neither is there, nobody knows.
2. The controllers may do what they need (`rules.controller_rights`), by the server's own access reviews.
3. The API server says that its store is ready, and has nothing to add: it adds that writes are refused, since the store is full.
4. Every other role of this machine answers that it is ready, where somebody here knows where it is asked, and serves with a certificate that was renewed in time.
5. Every webhook answers that can be asked from here. One that writes wait for is a failure; one that they go on without is a warning.
"""

from __future__ import annotations

import datetime
from typing import Final

from handfast import errors
from handfast.api import durations, jsonpath, objects
from handfast.rules import check
from handfast.rules.diagnoses import ending, facts, reaching

_OK: Final = check.Verdict.OK
_FAILED: Final = check.Verdict.FAILED
_START: Final = "start them: handfast up, or handfast serve controllers"
_RENEWS: Final = (
    "see the log of `handfast up`, on its standard error: it renews the certificates of its roles; start it again"
)
# What Handfast's own server has in its version.
OWN_SERVER: Final = "+handfast"
# A Lease that was not renewed for so many times its duration has no holder that lives.
_TERMS: Final = 2
_DURATION: Final = 15


def controllers(known: facts.Facts) -> check.Check:
    name, probe = "controllers", known.controllers
    # 1. what they say themselves
    if probe is not None and not probe.ready:
        said = f"asked at {probe.where}: {probe.said}"
        return check.Check(name, _FAILED, said, "ControllersNotReady", _START)
    if isinstance(known.lease, check.Unread):
        return check.unread(name, known.lease) if probe is None else _ready(name, probe)
    if known.lease is not None:
        return _led(name, known.lease, known.now)
    if probe is None:
        why = "they take no turns by a Lease, and where their health is asked is not known here"
        hint = "ask on the machine that runs them, with --dir, or let them take turns: --leader-elect"
        return check.Check(name, check.Verdict.UNKNOWN, why, check.UNKNOWN, hint)
    return _ready(name, probe)


def _ready(name: str, probe: facts.Probe) -> check.Check:
    return check.Check(name, _OK, f"ready at {probe.where}")


def _led(name: str, lease: objects.Document, now: datetime.datetime) -> check.Check:
    holder = jsonpath.text(lease, "spec", "holderIdentity")
    title = f"Lease {jsonpath.text(lease, 'metadata', 'namespace')}/{jsonpath.text(lease, 'metadata', 'name')}"
    if not holder:
        return check.Check(name, _FAILED, f"{title} has no holder: nobody leads", "NoLeader", _START)
    try:
        renewed = objects.parse_timestamp(jsonpath.text(lease, "spec", "renewTime"))
    except (ValueError, errors.Refused):
        return check.Check(name, _FAILED, f"{title} does not say when it was renewed", "NoLeader", _START)
    ago, terms = now - renewed, jsonpath.number(lease, "spec", "leaseDurationSeconds") or _DURATION
    said = f"{title} of {holder} was renewed {durations.short(ago)} ago"
    if ago.total_seconds() > _TERMS * terms:
        return check.Check(name, _FAILED, f"{said}, and lasts {terms} s: nobody leads", "NoLeader", _START)
    return check.Check(name, _OK, said)


def roles(known: facts.Facts) -> check.Check:
    name, version = "roles", known.reach.version
    if known.roles is None:
        if isinstance(version, check.Unread):
            return check.unread(name, facts.NOT_ASKED)
        if OWN_SERVER not in version:
            return check.Check(name, _OK, "not a control plane of Handfast's own")
        why = "where the health of other roles is asked is not known here"
        return check.Check(
            name, check.Verdict.UNKNOWN, why, check.UNKNOWN, "ask on the machine that runs them, with --dir"
        )
    # 4. what they say, and what they show
    silent = [f"{role} at {probe.where}: {probe.said}" for role, probe in known.roles.items() if not probe.ready]
    if silent:
        hint = "see its log: what `handfast up` writes to standard error; `handfast up` starts again what ends"
        return check.Check(name, _FAILED, f"not ready: {check.several(silent)}", "RoleNotReady", hint)
    for role, certificate in known.serving.items():
        row = ending.leaf(name, f"the certificate of {role}", certificate, known.now, _RENEWS)
        if row.verdict is not _OK:
            return row
    return check.Check(name, _OK, f"ready: {', '.join(known.roles)}" if known.roles else "no other runs here")


def rights(known: facts.Facts) -> check.Check:
    name, missing = "rights", known.missing_rights
    if isinstance(missing, check.Unread):
        return check.unread(name, missing)
    # 2. what they need
    return check.about(
        name,
        missing,
        _FAILED,
        "ControllerRightsMissing",
        lambda rows: f"{known.controllers_user} may not, and needs to: {rows}",
        "give the role back what it had: start the API server again, or apply `handfast serve controllers --print-manifest`",
        f"{known.controllers_user} may do what its controllers need" if known.controllers_user else "nobody to ask for",
    )


def store(known: facts.Facts) -> check.Check:
    name, ready = "store", known.ready
    if isinstance(ready, check.Unread):
        return check.unread(name, ready)
    rows = [line for line in ready.splitlines() if line[3:].split(" ", 1)[0] in reaching.STORES]
    # 3. by the server's own words
    if not rows:
        why = "the API server does not say how its store is"
        return check.Check(
            name, check.Verdict.UNKNOWN, why, check.UNKNOWN, "ask with a credential that may read /readyz"
        )
    wrong = [row for row in rows if row.startswith("[-]")]
    if wrong:
        hint = "on the machine that has it: handfast store status; and see its disk, or the etcd behind it"
        return check.Check(name, _FAILED, check.several([row[3:] for row in wrong]), "StoreNotReady", hint)
    noted = [row[3:] for row in rows if ", but " in row]
    if noted:
        hint = "make room: delete objects, or free space where it is; on the machine that has it: handfast store status"
        return check.Check(name, _FAILED, check.several(noted), "StoreFull", hint)
    return check.Check(name, _OK, check.several([row[3:] for row in rows]))


def webhooks(known: facts.Facts) -> check.Check:
    name, hooks = "webhooks", known.webhooks
    if isinstance(hooks, check.Unread):
        return check.unread(name, hooks)
    # 5. those that can be asked
    shut = [f"{each.name} at {each.where}: {each.trouble}" for each in hooks if each.trouble and not each.fails_open]
    skipped = [f"{each.name} at {each.where}: {each.trouble}" for each in hooks if each.trouble and each.fails_open]
    hint = "start it, mend its address or its caBundle, or delete its configuration"
    if shut:
        said = f"writes that it judges are refused, since it does not answer: {check.several(shut)}"
        return check.Check(name, _FAILED, said, "WebhookNotAnswering", hint)
    if skipped:
        said = f"writes pass unjudged, since it does not answer: {check.several(skipped)}"
        return check.Check(name, check.Verdict.WARNING, said, "WebhookNotAnswering", hint)
    unasked = [each.name for each in hooks if each.trouble is None]
    more = f"; not asked from here: {check.several(unasked)}" if unasked else ""
    return check.Check(
        name, _OK, f"{len(hooks) - len(unasked)} of {len(hooks)} answer{more}" if hooks else "there is none"
    )
