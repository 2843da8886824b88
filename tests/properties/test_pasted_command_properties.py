# SPDX-License-Identifier: Apache-2.0
"""Whatever a stranger calls something: in a command that people paste, the name is one word, and nothing else is run."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from handfast.api import resources
from handfast.rules import revocation
from handfast.rules.console import access, outcomes, store
from handfast.rules.diagnoses import facts, members
from handfast.rules.machines import doors
from handfast.rules.nodes import join_failures, overview
from handfast.rules.tokens import use
from tests.unit.rules.console import test_machines as machine_cases
from tests.unit.rules.diagnoses import known
from tests.unit.rules.machines import test_doors as door_cases

NOW = known.NOW
# What is special to a shell, and some letters.
NAMES = some.text(alphabet="ab;&|$()`<>\"' \t\\*?[]{}!#~=%-", min_size=1, max_size=20)
_USUAL = "somebody-usual"
_REQUEST = known.request("x")


def _waiting(name: str) -> overview.Request:
    return overview.Request(name, "somebody", NOW, "")


def _node(name: str, **more: Any) -> str:
    return overview.judge(name, overview.Facts(**more), NOW).next_step


def _failed(reason: str = "", **more: Any) -> str:
    return join_failures.Failed(last=NOW, reason=reason, **more).change


def _requests(name: str) -> str:
    document = {**_REQUEST, "metadata": {**_REQUEST["metadata"], "name": name}}
    return members.requests(known.good(requests=facts.Requests([document]))).hint


def _machine(name: str) -> str:
    [row] = machine_cases.rows(machine_cases.machine(), waiting=lambda _node: (_waiting(name),))
    return row.next_step


def _door(name: str) -> str:
    role = door_cases.role(("certificatesigningrequests", "create"))
    door = doors.of_binding({**door_cases.binding(door_cases.SUBJECT), "metadata": {"name": name}}, role)
    assert door is not None
    return door.close


# Every producer of a command with a name that somebody else has chosen.
PRODUCERS: dict[str, Callable[[str], str]] = {
    "the next step of a node whose request waits": lambda name: _node("w1", requests=(_waiting(name),)),
    "the next step of a node that is revoked": lambda name: _node(
        name, revoked=revocation.Revocation(name="r", node=name, reason="stolen")
    ),
    "a join whose request waits": lambda name: _failed(request=name),
    "a join with a token for other nodes": lambda name: _failed(use.NOT_FOR_THIS_NODE, node=name),
    "a join of a node that is revoked": lambda name: _failed(revocation.REVOKED, node=name),
    "a join with a token that is known": lambda name: _failed("Other", token=name),
    "the check of requests": _requests,
    "a machine whose request waits": _machine,
    "a machine of this name": lambda name: machine_cases.rows(machine_cases.machine(name))[0].next_step,
    "a binding that opens a door": _door,
    "a Secret that opens a door": lambda name: doors.of_secret({"name": name}, machine="m").close,
    "the right to read": lambda name: access.grant(resources.NODES, "", name)[1],
    "the right to act": lambda name: outcomes.grant((outcomes.Right("get", "nodes", name=name),), "jane")[0],
    "the right to read figures": store.grant,
}


@pytest.mark.parametrize("producer", PRODUCERS)
@given(name=NAMES)
@example(name="x;touch owned")
@example(name="$(touch owned)")
@example(name="it's `touch owned`")
def test_a_name_is_one_word_of_a_command_that_people_paste(producer: str, name: str):
    command = PRODUCERS[producer](name)
    words = shlex.split(command)
    usual = PRODUCERS[producer](_USUAL).split()
    # The same words as for any other name, but for the one that has it.
    assert words == [word.replace(_USUAL, name) for word in usual]
    assert words != usual
