# SPDX-License-Identifier: Apache-2.0
"""Approving and denying one request: what is written, what stands already, and what others do meanwhile."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from handfast import errors
from handfast.api import status
from handfast.client import request_decisions
from tests.unit.client import scripted
from tests.unit.rules import csr_cases
from tests.world.clock import MovableClock


def request(*conditions: dict[str, Any]) -> dict[str, Any]:
    document = csr_cases.csr()
    document["metadata"] |= {"uid": "uid-1", "resourceVersion": "7"}
    return {**document, "status": {"conditions": list(conditions)}}


async def decide(
    *steps: scripted.Step, verdict: str = "Approved", uid: str = ""
) -> tuple[bool, list[scripted.Request]]:
    deciding = request_decisions.Deciding(verdict, "ConsoleDecision", "because", MovableClock().now)
    async with scripted.serving(*steps) as server, scripted.client_of(server) as client:
        return await deciding.decide(client, "csr-1", uid), server.requests


READ = scripted.answer(200, request())
CONFLICT = scripted.status(409, "Conflict")


@pytest.mark.parametrize("verdict", ["Approved", "Denied"])
async def test_the_condition_is_written_by_the_approval_door(verdict: str) -> None:
    changed, sent = await decide(READ, READ, verdict=verdict, uid="uid-1")
    assert changed
    assert (sent[1].method, sent[1].path.rsplit("/", 1)[1]) == ("PUT", "approval")
    condition = msgspec.json.decode(sent[1].body)["status"]["conditions"][0]
    assert (condition["type"], condition["reason"], condition["message"]) == (verdict, "ConsoleDecision", "because")


async def test_one_that_is_decided_so_already_is_left_as_it_is() -> None:
    changed, sent = await decide(scripted.answer(200, request(csr_cases.condition("Approved"))))
    assert not changed
    assert len(sent) == 1


async def test_a_decision_stands() -> None:
    with pytest.raises(errors.Refused) as caught:
        await decide(scripted.answer(200, request(csr_cases.condition("Denied"))))
    assert caught.value.reason == "AlreadyDenied"


async def test_another_request_of_the_same_name_is_not_decided() -> None:
    with pytest.raises(errors.Refused) as caught:
        await decide(READ, uid="uid-0")
    assert caught.value.reason == "RequestReplaced"


async def test_a_conflict_is_tried_again_and_ten_are_enough() -> None:
    changed, sent = await decide(READ, CONFLICT, READ, READ)
    assert changed
    assert len(sent) == 4
    with pytest.raises(errors.Unavailable, match="others keep writing"):
        await decide(*[READ, CONFLICT] * 10)


async def test_what_the_server_refuses_is_told() -> None:
    with pytest.raises(status.StatusError) as caught:
        await decide(READ, scripted.status(403, "Forbidden"))
    assert caught.value.reason == "Forbidden"
