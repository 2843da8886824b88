# SPDX-License-Identifier: Apache-2.0
"""A machine fleet: pools that are degraded or slow, and CAs of bootstrap credentials that end."""

from typing import Any

import pytest

from handfast.rules import check
from handfast.rules.diagnoses import fleet
from handfast.rules.machines import bootstrapper
from tests.unit.pki import making
from tests.unit.rules.diagnoses import known

FORBIDDEN = check.Unread("no")
SIGNER = making.ca(bootstrapper.SIGNER, **known.YEARS)
SHORT = making.ca(bootstrapper.SIGNER, not_before=known.NOW - 3000 * known.DAY, not_after=known.NOW + 11 * known.DAY)
OVER = making.ca(bootstrapper.SIGNER, not_before=known.NOW - 3000 * known.DAY, not_after=known.NOW - known.DAY)


def verdict(judge, **changes):
    row = judge(known.good(**changes))
    return row.verdict.value, row.reason


def pool(kind: str = "", *, reason: str = "", hours: float = 0, machines: int = 2) -> dict[str, Any]:
    since = known.NOW - hours * known.DAY / 24
    row = {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": f"{since:%Y-%m-%dT%H:%M:%SZ}"}
    return {
        "metadata": {"name": "workers"},
        "status": {
            "machineCount": machines,
            "updatedMachineCount": 1,
            "conditions": [{**row, "message": "w1 says no"}] if kind else [],
        },
    }


@pytest.mark.parametrize(
    ("pools", "wanted", "said"),
    [
        (None, ("ok", ""), "no kind"),
        ([], ("ok", ""), "there are none"),
        ([pool()], ("ok", ""), "1 pools, 0 with"),
        (
            [pool("Degraded", reason="RenderDegraded")],
            ("failed", "PoolDegraded"),
            "workers: RenderDegraded: w1 says no",
        ),
        ([pool(), pool("Degraded", reason="MachinesDegraded")], ("warning", "PoolDegraded"), "w1 says no"),
        ([pool("Updating", hours=0.9)], ("ok", ""), "1 with"),
        ([pool("Updating", hours=1.1)], ("warning", "RolloutSlow"), "workers for 1h6m, 1 of 2 done"),
        ([pool("Updating", hours=1.1, machines=12)], ("ok", ""), "1 with"),
        (FORBIDDEN, ("unknown", "Unknown"), "no"),
    ],
)
def test_pools_have_a_configuration_and_roll_outs_go_on(pools, wanted, said):
    assert verdict(fleet.machine_pools, pools=pools) == wanted
    assert said in fleet.machine_pools(known.good(pools=pools)).sentence


def test_a_roll_out_that_does_not_say_since_when_is_not_slow():
    odd = pool("Updating")
    del odd["status"]["conditions"][0]["lastTransitionTime"]
    assert verdict(fleet.machine_pools, pools=[odd]) == ("ok", "")


def source(*cas: making.Made, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": "s"}, "data": {bootstrapper.BUNDLE_KEY: known.pem_of(*cas).decode(), **data}}


@pytest.mark.parametrize(
    ("sources", "wanted"),
    [
        ([], ("ok", "")),
        ([source(SIGNER)], ("ok", "")),
        ([source(SHORT)], ("failed", "CAEndsSoon")),
        # Any of them may be the one that a machine has.
        ([source(SIGNER), source(SHORT)], ("warning", "CAEndsSoon")),
        ([source(OVER)], ("failed", "CAExpired")),
        ([source(SHORT, **{"revoke-at": "2020-01-01T00:00:00Z"})], ("ok", "")),
        ([source(SIGNER, **{"revoke-at": "soon"})], ("warning", "ClientCASourceUnreadable")),
        (FORBIDDEN, ("unknown", "Unknown")),
    ],
)
def test_cas_of_bootstrap_credentials_last_as_long_as_they_count(sources, wanted):
    assert verdict(fleet.bootstrap_credentials, bootstrap=sources) == wanted
    row = fleet.bootstrap_credentials(known.good(bootstrap=sources))
    assert "ca rotate" not in row.hint


def test_a_bootstrap_credential_that_is_to_be_revoked_says_when():
    row = fleet.bootstrap_credentials(known.good(bootstrap=[source(SIGNER, **{"revoke-at": "2099-01-01T00:00:00Z"})]))
    assert row.sentence.endswith("; to be revoked at 2099-01-01T00:00:00Z")
