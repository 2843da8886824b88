# SPDX-License-Identifier: Apache-2.0
"""Checks of a machine fleet beyond its Machines: the pools of configurations, and the CAs by which machines introduce themselves. It reads nothing.

1. No pool says that its configuration cannot be rendered: then no machine of it gets any. One with a degraded machine is a warning.
2. No roll-out takes longer than ten minutes for each machine, and an hour at least. One that is paused waits for somebody, who knows.
3. The CAs of bootstrap credentials can be read, and are not near their end, as long as they are to count (`machines.credential_end`).
"""

from __future__ import annotations

import datetime
from typing import Final

from handfast.api import durations, jsonpath, objects
from handfast.api.printing import ages
from handfast.rules import check
from handfast.rules.diagnoses import ending, facts
from handfast.rules.machine_config import pool_status, pools
from handfast.rules.machines import client_ca_sources, credential_end

_OK: Final = check.Verdict.OK
_WARNING: Final = check.Verdict.WARNING
_FAILED: Final = check.Verdict.FAILED
_EACH: Final = datetime.timedelta(minutes=10)
_AT_LEAST: Final = datetime.timedelta(hours=1)
_ANEW: Final = "make another while it lasts, or revoke it: handfast machine credentials create, handfast machine credentials revoke"


def machine_pools(known: facts.Facts) -> check.Check:
    name, read = "machine-pools", known.pools
    if isinstance(read, check.Unread):
        return check.unread(name, read)
    if read is None:
        return check.Check(name, _OK, "this cluster has no kind of MachineConfigPool")
    every = [pools.read(each) for each in read]
    hint = "handfast machine pools"
    # 1. a configuration, and machines that have it
    broken = [f"{each.name}: {said}" for each in every if (said := pool_status.trouble(each))]
    if broken:
        said = f"cannot be given a configuration: {check.several(broken)}"
        return check.Check(name, _FAILED, said, "PoolDegraded", hint)
    degraded = [
        f"{each.name}: {pool_status.said(each, pool_status.DEGRADED)}"
        for each in every
        if pool_status.is_true(each, pool_status.DEGRADED)
    ]
    if degraded:
        return check.Check(name, _WARNING, f"machines are degraded: {check.several(degraded)}", "PoolDegraded", hint)
    # 2. no roll-out that stands still
    slow = [row for each in every if (row := _slow(each, known.now))]
    if slow:
        return check.Check(name, _WARNING, f"a roll-out goes on for long: {check.several(slow)}", "RolloutSlow", hint)
    going = sum(pool_status.is_true(each, pool_status.UPDATING) for each in every)
    return check.Check(
        name, _OK, f"{len(every)} pools, {going} with a roll-out under way" if every else "there are none"
    )


def _slow(pool: pools.Pool, now: datetime.datetime) -> str:
    machines = jsonpath.number(pool.status, "machineCount") or 0
    since = ages.instant(pool_status.since(pool, pool_status.UPDATING))
    if not pool_status.is_true(pool, pool_status.UPDATING) or since is None:
        return ""
    if now - since <= max(_AT_LEAST, _EACH * machines):
        return ""
    done = jsonpath.number(pool.status, "updatedMachineCount") or 0
    return f"{pool.name} for {durations.short(now - since)}, {done} of {machines} done"


def bootstrap_credentials(known: facts.Facts) -> check.Check:
    name, read = "bootstrap-credentials", known.bootstrap
    if isinstance(read, check.Unread):
        return check.unread(name, read)
    # 3. as long as they count
    contents = [client_ca_sources.read_bootstrap(each, known.now) for each in read]
    wrong = [each.sentence for content in contents for each in content.problems]
    if wrong:
        return check.Check(name, _WARNING, check.several(wrong), client_ca_sources.UNREADABLE, _ANEW)
    anchors = list({each.fingerprint: each for content in contents for each in content.certificates}.values())
    if not anchors:
        return check.Check(name, _OK, "no CA of bootstrap credentials counts")
    row = ending.cas(name, "machines", anchors, known.now, hint=_ANEW)
    ends = [end for each in read if (end := credential_end.of(each)) is not None and end > known.now]
    if row.verdict is _OK and ends:
        return check.Check(name, _OK, f"{row.sentence}; to be revoked at {objects.timestamp(min(ends))}")
    return row
