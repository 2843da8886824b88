# SPDX-License-Identifier: Apache-2.0
"""Refused joins at one server, over a real store: what counts as one, and the Events that come of it."""

from __future__ import annotations

import asyncio
import base64
import collections
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from handfast import errors
from handfast.api import status
from handfast.apiserver import calls, identity, join_failures, request
from handfast.apiserver.access import authz
from handfast.apiserver.admission import plugin
from handfast.apiserver.state import envelope, replica, storage
from handfast.pki import keys, names, requests
from handfast.rules import decision
from handfast.rules.machines import bootstrapper
from handfast.rules.tokens import failed_joins
from handfast.runtime import tasks
from handfast.store.sqlite import engine
from tests.unit.apiserver import admission_world
from tests.world import clock as clocks

CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
HOLDER = identity.User("system:bootstrap:abcdef", ("system:bootstrappers",), method="bootstrap-token")


class Server:
    """One server's memory of failed joins, its store and its counters."""

    def __init__(self, store: storage.Storage) -> None:
        self.storage = store
        self.clock = clocks.MovableClock()
        self.counted: collections.Counter[str] = collections.Counter()
        self.failures = join_failures.JoinFailures(store, self.clock, lambda reason: self.counted.update([reason]))

    async def events(self) -> list[dict[str, Any]]:
        await self.failures.write()
        await asyncio.sleep(0)
        return [item.document() for item in self.storage.replica.collection("core/events/").snapshot()]


@pytest.fixture
async def server(tmp_path: pathlib.Path) -> AsyncIterator[Server]:
    store = await engine.open_store(str(tmp_path / "store.db"))
    envelopes = envelope.Envelopes(None, ())
    copy = replica.Replica(store, envelopes)
    await copy.load()
    async with tasks.Group("test") as group:
        group.start(copy.follow(), name="follow")
        yield Server(storage.Storage(store, envelopes, copy))
        group.end()
    await store.close()


def asking(user: identity.User = HOLDER, method: str = "POST", path: str = CSRS) -> calls.Call:
    return calls.Call(make_mocked_request(method, path), "boot-1", request.parse(method, path), "192.0.2.7", user)


def refused_token(bearer: identity.Bearer | None, why: str = "TokenExpired") -> identity.Unauthorized:
    error = identity.Unauthorized(why, "for the log")
    error.bearer = bearer
    return error


def refused_request(node: str = "worker-1", why: str = "TokenUsedUp") -> plugin.Refusal:
    subject = names.Subject(common_name=f"system:node:{node}", organizations=("system:nodes",))
    made = requests.build(subject, names.Sans(), keys.generate(keys.Kind.P256))
    document = {"metadata": {"name": "csr"}, "spec": {"request": base64.b64encode(made).decode()}}
    kind = admission_world.KINDS["certificates.k8s.io", "certificatesigningrequests"]
    write = plugin.Write(plugin.CREATE, kind, "", "", "csr", document, None, HOLDER, dry_run=False)
    return plugin.Refusal(write, decision.Deny(why, "none is left", "TokenLimits"))


async def test_a_refused_token_becomes_an_event_and_is_counted(server: Server) -> None:
    for _ in range(3):
        server.failures.refused(asking(identity.ANONYMOUS), refused_token(identity.Bearer("abcdef")))
    [event] = await server.events()
    assert (event["count"], event["reason"], event["type"]) == (3, "JoinRefused", "Warning")
    assert event["involvedObject"]["name"] == "bootstrap-token-abcdef"
    assert event["metadata"]["uid"]
    assert "for the log" not in str(event)
    assert server.counted == {"TokenExpired": 3}
    # Again, and later: the same Event.
    server.failures.refused(asking(identity.ANONYMOUS), refused_token(identity.Bearer("abcdef")))
    assert [each["count"] for each in await server.events()] == [3]
    await server.clock.advance(failed_joins.PERIOD.total_seconds())
    assert [each["count"] for each in await server.events()] == [4]


async def test_a_request_that_admission_refuses_names_the_node(server: Server) -> None:
    server.failures.refused(asking(), refused_request())
    [event] = await server.events()
    assert event["metadata"]["annotations"] == {
        failed_joins.TOKEN: "abcdef",
        failed_joins.SOURCE: "192.0.2.7",
        failed_joins.WHY: "TokenUsedUp",
        failed_joins.NODE: "worker-1",
    }


async def test_a_request_that_cannot_be_read_names_no_node(server: Server) -> None:
    refusal = refused_request()
    refusal.written = {"spec": {"request": "bm8="}}
    server.failures.refused(asking(), refusal)
    [event] = await server.events()
    assert failed_joins.NODE not in event["metadata"]["annotations"]


async def test_what_a_webhook_says_is_no_reason(server: Server) -> None:
    server.failures.refused(asking(), status.StatusError("Forbidden", 'admission webhook "w" denied it: \x1b[31m'))
    [event] = await server.events()
    assert event["metadata"]["annotations"][failed_joins.WHY] == "Forbidden"
    assert "webhook" not in event["message"]


async def test_a_token_without_the_right_to_ask_is_a_failed_join(server: Server) -> None:
    call = asking()
    refusal = authz.Refusal(authz.attributes(call.user, call.info), decision.Deny("NoRule", "no rule", "RBAC"))
    server.failures.refused(call, refusal)
    assert server.counted == {"NoRule": 1}


@pytest.mark.parametrize(("method", "word"), [("x509", "certificate"), ("service-account-secret", "account")])
async def test_so_is_the_credential_of_a_fleet_that_may_not_ask(server: Server, method: str, word: str) -> None:
    call = asking(identity.User(bootstrapper.USER, bootstrapper.GROUPS, method=method))
    refusal = authz.Refusal(authz.attributes(call.user, call.info), decision.Deny("NoRuleAllows", "no rule", "RBAC"))
    server.failures.refused(call, refusal)
    [event] = await server.events()
    assert event["metadata"]["annotations"][failed_joins.CREDENTIAL] == word
    assert event["involvedObject"]["name"] == "kube-system"
    assert server.counted == {"NoRuleAllows": 1}


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (asking(identity.ANONYMOUS), refused_token(None)),
        (asking(identity.User(bootstrapper.USER, (), method="x509 impersonation")), refused_request()),
        (asking(identity.User("system:bootstrap:abcdef", (), method="x509")), refused_request()),
        (asking(path="/api/v1/nodes"), status.StatusError("Forbidden", "no")),
        (asking(method="GET"), status.StatusError("Forbidden", "no")),
        (asking(), status.StatusError("TooManyRequests", "later")),
    ],
    ids=[
        "another token",
        "acting as the account",
        "another credential",
        "other objects",
        "only looking",
        "over the rate",
    ],
)
async def test_other_refusals_are_no_failed_joins(server: Server, call: calls.Call, error: status.StatusError) -> None:
    server.failures.refused(call, error)
    assert (await server.events(), server.counted) == ([], {})


@pytest.mark.parametrize(
    ("bearer", "about"),
    [
        (identity.Bearer("nosuch", known=False, holds_secret=False), "kube-system"),
        (identity.Bearer("abcdef", holds_secret=False), "bootstrap-token-abcdef"),
    ],
)
async def test_an_id_that_is_there_has_an_event_of_its_own(server: Server, bearer: identity.Bearer, about: str) -> None:
    server.failures.refused(asking(identity.ANONYMOUS), refused_token(bearer, "Why"))
    [event] = await server.events()
    assert event["involvedObject"]["name"] == about


async def test_what_cannot_be_written_is_written_later(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(*_: object) -> None:
        raise errors.Unavailable("the disk is full", reason="StoreFull")

    server.failures.refused(asking(identity.ANONYMOUS), refused_token(identity.Bearer("abcdef")))
    with monkeypatch.context() as patched:
        patched.setattr(server.storage, "create", full)
        assert await server.events() == []
    # Not at once: a full disk is not to be asked all the time.
    assert await server.events() == []
    await server.clock.advance(failed_joins.PERIOD.total_seconds())
    assert [each["count"] for each in await server.events()] == [1]


async def test_a_flood_is_written_a_few_at_a_time(server: Server) -> None:
    for number in range(1000):
        bearer = identity.Bearer(f"{number:06}", known=False, holds_secret=False)
        call = asking(identity.ANONYMOUS)
        call.source = f"10.0.{number >> 8}.{number & 255}"
        server.failures.refused(call, refused_token(bearer, "UnknownToken"))
    async with tasks.Group("test") as group:
        group.start(server.failures.run(), name="run")
        seen = []
        for _ in range(12):
            await asyncio.sleep(0.05)
            seen.append(len(server.storage.replica.collection("core/events/").snapshot()))
            await server.clock.advance(join_failures.PAUSE)
        group.end()
    events = await server.events()
    assert 0 < seen[0] <= failed_joins.AT_ONCE
    assert seen == sorted(seen)
    assert max(seen) <= failed_joins.ROOM[failed_joins.Shown.NOTHING] + 1
    # Each is counted, also those that no Event has room for.
    assert server.counted == {"UnknownToken": 1000}
    assert len({each["metadata"]["name"] for each in events}) == len(events)
