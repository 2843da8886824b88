# SPDX-License-Identifier: Apache-2.0
"""The status of a Pod that a machine runs itself."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest

from handfast.rules.mesh import workload_status

BEGUN = datetime.datetime(2026, 11, 17, 12, 0, tzinfo=datetime.UTC)
NOW = BEGUN + datetime.timedelta(minutes=1)
FACTS = workload_status.Facts(ip="127.70.1.2", host_ip="127.0.0.1", started=BEGUN, ready_changed=BEGUN, why_not="wait")
READY = dataclasses.replace(FACTS, is_started=True, proxy_ready=True, why_not=None, ready_changed=NOW, proxy_restarts=2)


def pod(policy: str = "") -> dict[str, Any]:
    return {
        "spec": {
            "initContainers": [{"name": "linkerd-init", "image": "i"}, {"name": "linkerd-proxy", "image": "p"}],
            "containers": [{"name": "application", "image": "a"}],
            **({"restartPolicy": policy} if policy else {}),
        }
    }


def status(facts: workload_status.Facts, policy: str = "") -> dict[str, Any]:
    found: dict[str, Any] = workload_status.document(pod(policy), facts, NOW)["status"]
    return found


def conditions(facts: workload_status.Facts) -> dict[str, Any]:
    return {row["type"]: row for row in status(facts)["conditions"]}


def test_before_its_start_it_is_pending_and_says_why():
    rows = status(FACTS)
    assert (rows["phase"], rows["podIP"], rows["hostIP"]) == ("Pending", "127.70.1.2", "127.0.0.1")
    assert rows["podIPs"] == [{"ip": "127.70.1.2"}, {"$patch": "replace"}]
    assert rows["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}
    ready = conditions(FACTS)["Ready"]
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "ContainersNotReady", "wait")


def test_it_is_ready_when_proxy_and_application_are():
    rows = conditions(READY)
    assert {kind: row["status"] for kind, row in rows.items()} == {
        "Initialized": "True",
        "ContainersReady": "True",
        "Ready": "True",
    }
    assert (rows["Ready"]["lastTransitionTime"], rows["Ready"]["message"]) == ("2026-11-17T12:01:00Z", "")
    found = status(READY)
    assert found["phase"] == "Running"
    init, proxy = found["initContainerStatuses"]
    assert init["state"]["terminated"]["exitCode"] == 0
    assert (proxy["ready"], proxy["started"], proxy["restartCount"]) == (True, True, 2)
    (application,) = found["containerStatuses"]
    assert (application["ready"], list(application["state"])) == (True, ["running"])


@pytest.mark.parametrize(
    ("policy", "code", "phase"),
    [
        ("", 0, "Running"),
        ("Always", 1, "Running"),
        ("OnFailure", 1, "Running"),
        ("OnFailure", 0, "Succeeded"),
        ("Never", 0, "Succeeded"),
        ("Never", 7, "Failed"),
    ],
)
def test_a_pod_whose_application_has_ended_has_ended_unless_it_is_started_again(policy, code, phase):
    found = status(dataclasses.replace(READY, code=code, why_not="it has ended"), policy)
    assert found["phase"] == phase
    ended = found["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (code, "Error" if code else "Completed")
