# SPDX-License-Identifier: Apache-2.0
"""The signer on a server that is a dictionary. That it converges whatever happens is in tests/properties."""

from __future__ import annotations

import base64
import datetime
from typing import Any

import msgspec
import pytest
import structlog

from handfast.api import status
from handfast.bootstrap import jws, tokens
from handfast.client import cache
from handfast.controllers import views
from handfast.controllers.joining import bootstrap_signer, signing_tokens
from tests.unit.controllers.fake_api import FakeClient, failing
from tests.world.clock import MovableClock

START = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
AT = ("configmaps", "kube-public", "cluster-info")
TOKEN = tokens.Token("abcdef", "0123456789abcdef")
KEY = "jws-kubeconfig-abcdef"
STALE = {"jws-kubeconfig-zzzzzz": "x", "jws-kubeconfig-": "y"}


class World:
    def __init__(self) -> None:
        self.client = FakeClient()
        self.clock = MovableClock(START)
        self.config_maps: cache.Informer[views.ConfigMap] = cache.Informer(views.CLUSTER_INFO)
        self.complaints = signing_tokens.Complaints(lambda: None)
        self.tokens = signing_tokens.Tokens(self.complaints, lambda: None)
        self.handler = bootstrap_signer.BootstrapSigner(
            self.client, self.clock, self.config_maps, self.tokens, self.complaints
        )

    def config_map(self, data: dict[str, str] | None, **more: Any) -> None:
        """Have it there, and seen."""
        self.client.put(*[AT[0], AT[2], AT[1]], data=data, **more)
        self.see()

    def see(self) -> None:
        self.config_maps.put(msgspec.convert(self.client.objects[AT], views.ConfigMap))

    def token(self, token: tokens.Token = TOKEN, seconds: float | None = None, **metadata: str) -> None:
        until = None if seconds is None else START + datetime.timedelta(seconds=seconds)
        document = tokens.secret_document(token, usages=["signing"], expiration=until)
        document["metadata"] |= {"uid": f"uid-{token.id}", **metadata}
        self.tokens.put(msgspec.convert(document, signing_tokens.View))

    def data(self) -> dict[str, str]:
        return dict(self.client.objects[AT]["data"])

    async def sign(self) -> float | None:
        return self.clock.left(await self.handler.reconcile(bootstrap_signer.SIGN))

    async def told(self) -> list[tuple[str, str, str]]:
        assert await self.handler.reconcile(bootstrap_signer.TELL) is None
        found = [document for (plural, *_), document in self.client.objects.items() if plural == "events"]
        return [(event["type"], event["reason"], event["involvedObject"]["name"]) for event in found]


async def test_no_config_map_is_0_actions():
    world = World()
    world.token()
    assert await world.sign() is None
    assert world.client.calls == []


async def test_sign_is_1_update():
    world = World()
    world.config_map({"kubeconfig": "payload", "more": "x"}, metadata={"labels": {"mine": "y"}})
    world.token()
    assert await world.sign() is None
    assert world.client.calls == [("update", "configmaps", "cluster-info")]
    data = world.data()
    jws.verify(data.pop(KEY), b"payload", TOKEN)
    assert data == {"kubeconfig": "payload", "more": "x"}
    assert world.client.objects[AT]["metadata"]["labels"] == {"mine": "y"}


async def test_up_to_date_is_0_actions():
    world = World()
    world.config_map({"kubeconfig": "payload", KEY: jws.sign(b"payload", TOKEN.id, TOKEN.secret)})
    world.token()
    world.client.before = failing(AssertionError("there was nothing to ask for"))
    assert await world.sign() is None


async def test_a_wrong_signature_is_an_update():
    world = World()
    world.config_map({"kubeconfig": "payload", KEY: "old signature"})
    world.token()
    await world.sign()
    jws.verify(world.data()[KEY], b"payload", TOKEN)


async def test_signatures_without_a_token_are_removed():
    world = World()
    world.config_map({"kubeconfig": "payload", **STALE})
    await world.sign()
    assert world.data() == {"kubeconfig": "payload"}


async def test_signatures_of_nothing_are_removed():
    world = World()
    world.config_map({"other": "x", **STALE})
    world.token(seconds=5)
    assert await world.sign() is None
    assert world.data() == {"other": "x"}
    world.config_map(None)
    world.client.calls.clear()
    assert await world.sign() is None
    assert world.client.calls == []


async def test_another_kubeconfig_is_signed_anew():
    world = World()
    world.config_map({"kubeconfig": "payload"})
    world.token()
    await world.sign()
    world.config_map({**world.data(), "kubeconfig": "another"})
    await world.sign()
    jws.verify(world.data()[KEY], b"another", TOKEN)


async def test_a_text_with_credentials_is_never_signed():
    world = World()
    world.config_map({"kubeconfig": "payload"})
    world.token()
    await world.sign()
    assert KEY in world.data()
    text = "users: [{name: u, user: {token: swordfish}}]"
    world.config_map({**world.data(), "kubeconfig": text})
    for _ in range(2):
        assert await world.sign() is None
        world.see()
    assert world.data() == {"kubeconfig": text}
    assert await world.told() == [("Warning", "CredentialsInClusterInfo", "cluster-info")]
    (event,) = [found for (plural, *_), found in world.client.objects.items() if plural == "events"]
    assert "swordfish" not in event["message"]
    assert "count" not in event or event["count"] == 1
    world.config_map({"kubeconfig": "payload"})
    await world.sign()
    assert KEY in world.data()


async def test_another_secret_signs_anew():
    world = World()
    world.config_map({"kubeconfig": "payload"})
    world.token()
    await world.sign()
    world.see()
    other = tokens.Token(TOKEN.id, "x" * 16)
    world.token(other)
    await world.sign()
    jws.verify(world.data()[KEY], b"payload", other)


async def test_signatures_that_are_right_are_not_made_again(monkeypatch: pytest.MonkeyPatch):
    made: list[str] = []
    real = jws.sign

    def spy(content: bytes, token_id: str, secret: str) -> str:
        made.append(token_id)
        return real(content, token_id, secret)

    monkeypatch.setattr(jws, "sign", spy)
    world = World()
    world.config_map({"kubeconfig": "payload"})
    for number in range(3):
        world.token(tokens.Token(f"00000{number}", "x" * 16))
    await world.sign()
    world.see()
    world.token()
    await world.sign()
    assert made == ["000000", "000001", "000002", "abcdef"]
    world.config_map({"kubeconfig": "another"})
    await world.sign()
    assert len(made) == 8


async def test_removed_at_the_instant_of_expiry():
    world = World()
    world.config_map({"kubeconfig": "payload"})
    world.token(seconds=10)
    world.token(tokens.Token("000001", "x" * 16), seconds=30)
    assert await world.sign() == 10.0
    world.see()
    await world.clock.advance(9.5)
    assert await world.sign() == 0.5
    assert KEY in world.data()
    await world.clock.advance(0.5)
    assert await world.sign() == 20.0
    assert set(world.data()) == {"kubeconfig", "jws-kubeconfig-000001"}
    world.see()
    await world.clock.advance(20)
    assert await world.sign() is None
    assert world.data() == {"kubeconfig": "payload"}


async def test_what_was_seen_is_compared_with_what_is_there():
    world = World()
    world.config_map({"kubeconfig": "payload"})
    world.token()
    await world.sign()
    # The watch has not shown the update yet.
    await world.sign()
    assert len(world.client.calls) == 1
    world.token(tokens.Token("000001", "x" * 16))
    world.client.objects[AT]["data"]["kubeconfig"] = "newer"
    await world.sign()
    jws.verify(world.data()[KEY], b"newer", TOKEN)
    del world.client.objects[AT]
    assert await world.sign() is None


async def test_a_lost_race_is_a_conflict_for_the_loop_to_retry():
    world = World()
    world.config_map({"kubeconfig": "payload"})
    world.token()
    raced: list[str] = []

    def race(verb: str, *_: str) -> None:
        if verb == "update" and not raced:
            raced.append(verb)
            world.client.put(AT[0], AT[2], AT[1], data={"kubeconfig": "by another"})

    world.client.before = race
    with pytest.raises(status.StatusError) as caught:
        await world.sign()
    assert caught.value.reason == "Conflict"
    assert world.data() == {"kubeconfig": "by another"}
    await world.sign()
    jws.verify(world.data()[KEY], b"by another", TOKEN)


async def test_those_for_which_there_is_no_room_get_a_warning():
    world = World()
    one = len(KEY) + len(jws.sign(b"payload", TOKEN.id, TOKEN.secret))
    # Room for exactly two; what is binary takes room, too.
    taken = len("kubeconfig") + len("payload") + len("fill") + len("bin") + len("AAAA")
    fill = "x" * ((1 << 20) - taken - 2 * one)
    world.config_map({"kubeconfig": "payload", "fill": fill}, binaryData={"bin": "AAAA"})
    for number, seconds in ((1, 10), (2, None), (3, 20)):
        world.token(tokens.Token(f"00000{number}", "x" * 16), seconds=seconds)
    assert await world.sign() == 10.0
    assert set(world.data()) == {"kubeconfig", "fill", "jws-kubeconfig-000002", "jws-kubeconfig-000003"}
    wanted = [("Warning", "NoRoomForSignature", "bootstrap-token-000001")]
    assert await world.told() == wanted
    event = next(document for (plural, *_), document in world.client.objects.items() if plural == "events")
    assert event["message"].startswith(
        "no use as a bootstrap token: the ConfigMap kube-public/cluster-info has no room"
    )
    assert (event["involvedObject"]["uid"], event["count"]) == ("uid-000001", 1)
    # Told once; and again if there was room for it in between.
    world.see()
    await world.sign()
    assert await world.told() == wanted
    assert event["count"] == 1
    del world.client.objects[AT]["data"]["fill"]
    world.config_map({**world.data()})
    await world.sign()
    assert "jws-kubeconfig-000001" in world.data()
    world.config_map({**world.data(), "fill": fill}, binaryData={"bin": "AAAA"})
    await world.sign()
    await world.told()
    assert next(d for (plural, *_), d in world.client.objects.items() if plural == "events")["count"] == 2


async def test_a_token_that_goes_while_there_is_no_room_for_it():
    world = World()
    world.config_map({"kubeconfig": "payload", "fill": "x" * (1 << 20)})
    world.token()
    await world.sign()
    world.tokens.remove(msgspec.convert(tokens.secret_document(TOKEN), signing_tokens.View))
    await world.sign()
    assert await world.told() == []


async def test_a_secret_that_is_no_use_gets_a_warning_that_says_why():
    world = World()
    world.token(name="bootstrap-token-other1")
    world.token(name="wrong")
    assert sorted(await world.told()) == [
        ("Warning", "WrongSecretName", "bootstrap-token-other1"),
        ("Warning", "WrongSecretName", "wrong"),
    ]
    for (plural, *_), event in world.client.objects.items():
        assert plural == "events"
        assert event["source"] == {"component": "bootstrap-signer-controller"}
        assert TOKEN.secret not in f"{event}"
        assert base64.b64encode(TOKEN.secret.encode()).decode() not in f"{event}"


async def test_binary_keys_of_that_name_do_not_stand_in_the_way():
    """A ConfigMap with one key in both is refused by the API, whoever has put it there."""
    world = World()
    binary = {KEY: "AAAA", "jws-kubeconfig-zzzzzz": "AAAA", "mine": "BBBB"}
    world.config_map({"kubeconfig": "payload"}, binaryData=binary)
    world.token()
    await world.sign()
    jws.verify(world.data()[KEY], b"payload", TOKEN)
    assert world.client.objects[AT]["binaryData"] == {"mine": "BBBB"}
    world.see()
    await world.sign()
    assert len(world.client.calls) == 1
    # Also where nothing else is to be done.
    world.config_map(world.data(), binaryData=binary)
    await world.sign()
    assert world.client.objects[AT]["binaryData"] == {"mine": "BBBB"}


async def test_binary_keys_that_go_take_no_room():
    world = World()
    world.config_map({"kubeconfig": "payload"}, binaryData={"jws-kubeconfig-zzzzzz": "A" * (1 << 20)})
    world.token()
    await world.sign()
    assert KEY in world.data()


async def test_an_immutable_one_is_told_of_once_and_left():
    world = World()
    world.config_map({"kubeconfig": "payload"}, immutable=True)
    world.token(seconds=10)
    with structlog.testing.capture_logs() as lines:
        # Nobody asks to be called again: only a new ConfigMap helps, and the watch shows it.
        assert [await world.sign(), await world.sign()] == [None, None]
    assert world.data() == {"kubeconfig": "payload"}
    assert await world.told() == [("Warning", "ImmutableConfigMap", "cluster-info")]
    assert [call[:2] for call in world.client.calls] == [("create", "events")]
    assert [(line["log_level"], line["reason"]) for line in lines] == [("warning", "ImmutableConfigMap")]
    assert "delete it, so that it can be made anew" in lines[0]["event"]
    # Another one is another matter.
    world.config_map({"kubeconfig": "payload"}, immutable=True, metadata={"uid": "next"})
    await world.sign()
    world.config_map({"kubeconfig": "payload"})
    assert await world.sign() == 10.0
    assert KEY in world.data()
    assert sum(call[1] == "events" for call in world.client.calls) == 2
