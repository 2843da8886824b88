# SPDX-License-Identifier: Apache-2.0
"""Certificate requests through their states, by the doors /approval and /status, and who is kept from which."""

from __future__ import annotations

import base64
import functools
from typing import Any

import pytest

from handfast.api import objects
from handfast.pki import authority, keys, names, requests
from tests.scenarios import granting
from tests.world import world as worlds

GROUP = "certificates.k8s.io"
CSRS = f"/apis/{GROUP}/v1/certificatesigningrequests"
CLIENT = "kubernetes.io/kube-apiserver-client"
MERGE = {"Content-Type": "application/merge-patch+json"}


def condition(kind: str, **more: str) -> dict[str, str]:
    return {"type": kind, "status": "True", "reason": "Test", **more}


@functools.cache
def key() -> keys.PrivateKey:
    return keys.generate(keys.Kind.P256)


async def filed(world: worlds.World) -> None:
    body = requests.build(names.Subject(common_name="boss"), names.Sans(), key())
    spec = {"request": base64.b64encode(body).decode(), "signerName": CLIENT, "usages": ["client auth"]}
    await granting.made(world, CSRS, {"metadata": {"name": "x"}, "spec": spec})


@pytest.fixture
async def staffed(world: worlds.World) -> worlds.World:
    """A request, an approver and a signer for it."""
    await filed(world)
    for user, door, verb in (("approver", "approval", "approve"), ("signer", "status", "sign")):
        await granting.grant(
            world,
            user,
            granting.rule("get", "certificatesigningrequests", group=GROUP),
            granting.rule("update patch", f"certificatesigningrequests/{door}", group=GROUP),
            granting.rule(verb, "signers", CLIENT, group=GROUP),
            space="",
        )
    return world


async def put(world: worlds.World, door: str, user: str, **status: Any) -> tuple[int, str]:
    """The object as it is, with another status, written as a client would: what came back, and why if it was refused."""
    document = (await world.get(f"{CSRS}/x")).json()
    answer = await world.request(
        "PUT", f"{CSRS}/x/{door}", {**document, "status": status}, context=world.context_for(user)
    )
    return answer.status, "" if answer.status == 200 else answer.message


async def test_a_signer_does_not_approve(staffed: worlds.World) -> None:
    for kind in ("Approved", "Denied"):
        code, message = await put(staffed, "status", "signer", conditions=[condition(kind)])
        assert (code, f'updates may not add a condition of type "{kind}"' in message) == (422, True)
    code, message = await put(staffed, "approval", "signer", conditions=[condition("Approved")])
    assert code == 403
    # As Kubernetes writes it, and to every reader.
    assert (await staffed.get(f"{CSRS}/x")).json()["status"] == {}
    assert [item["status"] for item in (await staffed.get(CSRS)).json()["items"]] == [{}]
    assert await put(staffed, "status", "signer", conditions=[condition("Failed")]) == (200, "")


async def test_a_denial_stays(staffed: worlds.World) -> None:
    assert await put(staffed, "approval", "approver", conditions=[condition("Denied")]) == (200, "")
    code, message = await put(staffed, "approval", "approver", conditions=[condition("Approved")])
    assert (code, 'may not remove a condition of type "Denied"' in message) == (422, True)
    code, message = await put(staffed, "approval", "approver", conditions=[condition("Denied"), condition("Approved")])
    assert (code, "Approved and Denied conditions are mutually exclusive" in message) == (422, True)
    code, message = await put(staffed, "approval", "approver", conditions=[])
    assert (code, 'may not remove a condition of type "Denied"' in message) == (422, True)


async def test_a_certificate_is_one_and_stays(staffed: worlds.World) -> None:
    approved = condition("Approved", lastUpdateTime="2026-06-01T12:00:00.123456+00:00")
    assert await put(staffed, "approval", "approver", conditions=[approved]) == (200, "")
    issued = base64.b64encode(
        authority.self_signed_ca(names.Subject(common_name="boss"), key(), staffed.clock.now()).pem
    ).decode()
    junk = base64.b64encode(b"junk").decode()
    code, message = await put(staffed, "status", "signer", conditions=[approved], certificate=junk)
    assert (code, "no CERTIFICATE block" in message) == (422, True)
    # A certificate sent to /approval is not taken.
    assert await put(staffed, "approval", "approver", conditions=[approved], certificate=issued) == (200, "")
    # A client that spells times its own way changes nothing of the approval.
    spelt = {**approved, "lastUpdateTime": "2026-06-01T12:00:00Z", "reason": "Other"}
    assert await put(staffed, "status", "signer", conditions=[spelt], certificate=issued) == (200, "")
    (stored,) = (await staffed.get(f"{CSRS}/x")).json()["status"]["conditions"]
    assert stored == {**approved, "lastTransitionTime": stored["lastTransitionTime"]}
    assert (await staffed.get(f"{CSRS}/x")).json()["status"]["certificate"] == issued
    for other in (junk, base64.b64encode(base64.b64decode(issued) * 2).decode(), ""):
        code, message = await put(staffed, "status", "signer", conditions=[approved], certificate=other)
        assert (code, "updates may not modify existing certificate content" in message) == (422, True)
    # A patch is no other door.
    patch = {"status": {"conditions": None}}
    answer = await staffed.request("PATCH", f"{CSRS}/x/status", patch, headers=MERGE)
    assert (answer.status, 'may not remove a condition of type "Approved"' in answer.message) == (422, True)


async def test_the_request_itself_changes_neither_spec_nor_status(staffed: worlds.World) -> None:
    document = (await staffed.get(f"{CSRS}/x")).json()
    changed = {
        **document,
        "spec": {**document["spec"], "signerName": "a.b/c"},
        "status": {"conditions": [condition("Approved")]},
    }
    changed["metadata"]["labels"] = {"a": "b"}
    answer = await staffed.request("PUT", f"{CSRS}/x", changed)
    assert answer.status == 200, answer.body
    assert (answer.json()["spec"], answer.json()["status"]) == (document["spec"], {})


async def test_what_is_no_request_is_not_stored(world: worlds.World) -> None:
    block = "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"
    spec = {"request": base64.b64encode(block.encode()).decode(), "signerName": "a.b/c", "usages": ["client auth"]}
    answer = await world.request("POST", CSRS, {"metadata": {"name": "x"}, "spec": spec})
    assert (answer.status, "not a PKCS#10 certificate request in DER" in answer.message) == (422, True)


async def test_the_server_dates_conditions(staffed: worlds.World) -> None:
    """Who leaves the times out gets them from the server; a signer cannot date an approval anew."""
    begun = staffed.clock.now()
    assert await put(staffed, "approval", "approver", conditions=[condition("Approved")]) == (200, "")
    (approved,) = (await staffed.get(f"{CSRS}/x")).json()["status"]["conditions"]
    assert approved["lastUpdateTime"] == approved["lastTransitionTime"]
    assert abs((objects.parse_timestamp(approved["lastUpdateTime"]) - begun).total_seconds()) < 60
    old = {**approved, "lastUpdateTime": "2020-01-01T00:00:00Z", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    sent = [old, condition("Failed")]
    assert await put(staffed, "status", "signer", conditions=sent) == (200, "")
    kept, failed = (await staffed.get(f"{CSRS}/x")).json()["status"]["conditions"]
    assert (kept, failed["type"]) == (approved, "Failed")
    assert objects.parse_timestamp(failed["lastTransitionTime"]) >= objects.parse_timestamp(kept["lastTransitionTime"])
    # An approver who finds better words keeps the transition of the same type and status.
    better = {"type": "Approved", "status": "True", "reason": "Better"}
    assert await put(staffed, "approval", "approver", conditions=[better, failed]) == (200, "")
    again, _ = (await staffed.get(f"{CSRS}/x")).json()["status"]["conditions"]
    assert (again["reason"], again["lastTransitionTime"]) == ("Better", approved["lastTransitionTime"])


@functools.cache
def request_text() -> str:
    return base64.b64encode(requests.build(names.Subject(common_name="boss"), names.Sans(), key())).decode()


@pytest.mark.parametrize(
    "changes, why",
    [
        pytest.param({}, "", id="good"),
        pytest.param({"request": ""}, "spec.request: Required value", id="empty request"),
        pytest.param({"request": "anVuaw=="}, "PEM block type must be CERTIFICATE REQUEST", id="invalid request"),
        pytest.param({"usages": []}, "spec.usages: Required value", id="no usages"),
        pytest.param({"usages": ["flying"]}, 'spec.usages[0]: Unsupported value: "flying"', id="unknown usage"),
        pytest.param(
            {"usages": ["client auth"] * 2}, 'spec.usages[1]: Duplicate value: "client auth"', id="duplicate usage"
        ),
        pytest.param({"signerName": ""}, "spec.signerName: Required value", id="no signer"),
        pytest.param({"signerName": "noslash"}, "must be a fully qualified domain", id="no slash"),
        pytest.param({"signerName": "a.b/c/d"}, "must be a fully qualified domain", id="two slashes"),
        pytest.param({"signerName": "notqualified/x"}, "at least two segments", id="domain of one label"),
        pytest.param({"signerName": "example.com/"}, 'validating label ""', id="empty path"),
        pytest.param({"signerName": "example.com/something-"}, 'label "something-"', id="dash at the end of the path"),
        pytest.param({"signerName": "example.com/."}, 'validating label ""', id="dot as the path"),
        pytest.param(
            {"signerName": "kubernetes.io/legacy-unknown"}, "the legacy signerName is not allowed", id="legacy signer"
        ),
        *(
            pytest.param({"expirationSeconds": seconds}, "less than 600 seconds (10 minutes)", id=f"{seconds} s")
            for seconds in (-1, 0, 1, 599)
        ),
        pytest.param({"expirationSeconds": 600}, "", id="600 s"),
    ],
)
async def test_new_requests(world: worlds.World, changes: dict[str, Any], why: str) -> None:
    spec = {"request": request_text(), "signerName": CLIENT, "usages": ["client auth"], **changes}
    answer = await world.request("POST", CSRS, {"metadata": {"name": "x"}, "spec": spec})
    assert (answer.status, why in answer.message if why else True) == (422 if why else 201, True), answer.body


async def test_conditions_sent_with_a_new_request_are_not_taken(world: worlds.World) -> None:
    spec = {"request": request_text(), "signerName": CLIENT, "usages": ["client auth"], "username": "root", "uid": "0"}
    status = {"conditions": [condition("Approved")], "certificate": "anVuaw=="}
    answer = await world.request("POST", CSRS, {"metadata": {"name": "x"}, "spec": spec, "status": status})
    assert answer.status == 201, answer.body
    found = answer.json()
    assert (found["status"], "uid" in found["spec"], found["spec"]["username"] == "root") == ({}, False, False)


@pytest.mark.parametrize(
    "held, sent, approval, status",
    [
        pytest.param((), ("Approved",), 200, 422, id="add Approved"),
        pytest.param((), ("Denied",), 200, 422, id="add Denied"),
        pytest.param((), ("Failed",), 200, 200, id="add Failed"),
        pytest.param((), ("Approved", "Denied"), 422, 422, id="add both"),
        pytest.param(("Approved",), ("Approved", "Failed"), 200, 200, id="approved, then failed"),
        pytest.param(("Approved",), (), 422, 422, id="remove Approved"),
        pytest.param(("Denied",), (), 422, 422, id="remove Denied"),
        pytest.param(("Failed",), (), 422, 422, id="remove Failed"),
        pytest.param(("Approved",), ("Denied",), 422, 422, id="turn it round"),
    ],
)
@pytest.mark.parametrize(("door", "user"), [("approval", "approver"), ("status", "signer")])
async def test_changes_by_each_door(
    staffed: worlds.World,
    held: tuple[str, ...],
    sent: tuple[str, ...],
    approval: int,
    status: int,
    door: str,
    user: str,
) -> None:
    if held:
        assert (await put(staffed, "approval", "approver", conditions=[condition(kind) for kind in held]))[0] == 200
    code, why = await put(staffed, door, user, conditions=[condition(kind) for kind in sent])
    assert code == (approval if door == "approval" else status), why
    stored = (await staffed.get(f"{CSRS}/x")).json()["status"].get("conditions", [])
    assert [row["type"] for row in stored] == list(sent if code == 200 else held)
