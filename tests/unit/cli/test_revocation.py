# SPDX-License-Identifier: Apache-2.0
"""Revoking a node over the API: what is written, once, and what is told of it."""

from __future__ import annotations

from typing import Any

import pytest

from handfast import errors
from handfast.api import status
from handfast.cli import revocation
from tests.unit.controllers.fake_api import FakeClient, failing

END = "2030-01-31T12:00:00Z"


@pytest.fixture
def client() -> FakeClient:
    made = FakeClient()
    made.put("nodes", "a")
    return made


def spec(client: FakeClient, name: str = "node-a") -> Any:
    return client.objects["revocations", "", name]["spec"]


async def test_it_is_created(client):
    outcome = await revocation.revoke(client, "a", "stolen", END)
    assert client.calls == [("create", "revocations", "node-a")]
    made = client.objects["revocations", "", "node-a"]
    assert (made["apiVersion"], made["kind"]) == ("handfast.dev/v1alpha1", "Revocation")
    assert made["spec"] == {"node": "a", "reason": "stolen", "expires": END}
    assert outcome == revocation.Outcome(
        node="a", revocation="node-a", revoked=True, changed=True, reason="stolen", expires=END, known=True
    )


async def test_without_reason_and_end_neither_is_sent(client):
    await revocation.revoke(client, "a", "", "")
    assert spec(client) == {"node": "a"}


async def test_twice_is_once(client):
    await revocation.revoke(client, "a", "stolen", "")
    again = await revocation.revoke(client, "a", "stolen", "")
    assert (again.changed, again.revoked, again.reason) == (False, True, "stolen")
    assert len(client.calls) == 1


async def test_the_reason_stays_and_the_end_does_not(client):
    await revocation.revoke(client, "a", "stolen", END)
    outcome = await revocation.revoke(client, "a", "", "")
    assert (outcome.changed, outcome.reason, outcome.expires) == (True, "stolen", "")
    assert spec(client) == {"node": "a", "reason": "stolen"}
    await revocation.revoke(client, "a", "found", END)
    assert spec(client) == {"node": "a", "reason": "found", "expires": END}


async def test_what_else_it_names_stays(client):
    client.put("revocations", "node-a", spec={"serialNumber": "7b", "reason": "x"})
    await revocation.revoke(client, "a", "", "")
    assert spec(client) == {"serialNumber": "7b", "reason": "x", "node": "a"}


@pytest.mark.parametrize("reason", ["AlreadyExists", "Conflict"])
async def test_who_comes_second_looks_again(client, reason):
    def meanwhile(verb: str, plural: str, name: str) -> None:
        if verb == "create":
            client.before = lambda *_: None
            client.put("revocations", "node-a", spec={"node": "a", "reason": "theirs"})
            raise status.StatusError(reason, "someone was faster")

    client.before = meanwhile
    outcome = await revocation.revoke(client, "a", "", "")
    assert (outcome.changed, outcome.reason) == (False, "theirs")


async def test_others_keep_writing(client):
    def always(verb: str, plural: str, name: str) -> None:
        if verb == "create":
            raise status.conflict(plural, "", name)

    client.before = always
    with pytest.raises(errors.Unavailable) as caught:
        await revocation.revoke(client, "a", "", "")
    assert caught.value.reason == "Conflict"


async def test_a_server_without_revocations(client):
    client.before = failing(status.no_such_path(), plural="revocations")
    with pytest.raises(errors.Refused) as caught:
        await revocation.revoke(client, "a", "", "")
    assert caught.value.reason == "NoRevocations"
    assert "revocations.handfast.dev" in caught.value.message
    outcome = await revocation.undo(client, "a")
    assert (outcome.changed, outcome.others) == (False, [])


async def test_an_unknown_node_is_refused_all_the_same(client):
    outcome = await revocation.revoke(client, "b", "", "")
    assert (outcome.changed, outcome.known) == (True, False)


async def test_who_may_not_read_nodes(client):
    def forbid(verb: str, plural: str, name: str) -> None:
        if plural == "nodes":
            raise status.forbidden("nodes", "", name, "no")

    client.before = forbid
    assert (await revocation.revoke(client, "a", "", "")).known is None


@pytest.mark.parametrize(("plural", "verb"), [("revocations", "get"), ("revocations", "create"), ("nodes", "get")])
async def test_other_errors_are_passed_on(client, plural, verb):
    def fail(asked: str, of: str, name: str) -> None:
        if (of, asked) == (plural, verb):
            raise status.StatusError("InternalError", "broken")

    client.before = fail
    with pytest.raises(status.StatusError) as caught:
        await revocation.revoke(client, "a", "", "")
    assert caught.value.reason == "InternalError"


async def test_undoing_deletes_it_and_twice_changes_nothing(client):
    await revocation.revoke(client, "a", "", "")
    outcome = await revocation.undo(client, "a")
    assert outcome == revocation.Outcome(node="a", revocation="node-a", revoked=False, changed=True, others=[])
    assert ("revocations", "", "node-a") not in client.objects
    assert not (await revocation.undo(client, "a")).changed


async def test_undo_tells_of_others(client):
    client.put("revocations", "node-a", spec={"node": "a"})
    client.put("revocations", "by-node", spec={"node": "a"})
    client.put("revocations", "by-user", spec={"user": "system:node:a"})
    client.put("revocations", "node-b", spec={"node": "b"})
    outcome = await revocation.undo(client, "a")
    assert outcome.others == ["by-node", "by-user"]
    assert ("revocations", "", "by-node") in client.objects


@pytest.mark.parametrize(("reason", "known"), [("Forbidden", True), ("InternalError", False)])
async def test_undo_where_lists_are_refused(client, reason, known):
    client.before = failing(status.StatusError(reason, "no"), verb="list")
    if known:
        assert (await revocation.undo(client, "a")).others == []
    else:
        with pytest.raises(status.StatusError) as caught:
            await revocation.undo(client, "a")
        assert caught.value.reason == reason


@pytest.mark.parametrize("node", ["", "A", "a b", "system:node:a", "node/a", "-a", "a" * 254, "a/../b"])
def test_what_is_no_name_of_a_node(node):
    with pytest.raises(errors.Refused) as caught:
        revocation.name_of(node)
    assert caught.value.reason == "BadNodeName"
    assert caught.value.hint


def test_the_longest_name():
    assert revocation.name_of("a" * 248) == "node-" + "a" * 248
    with pytest.raises(errors.Refused, match="too long"):
        revocation.name_of("a" * 249)
