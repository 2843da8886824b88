# SPDX-License-Identifier: Apache-2.0
"""Whatever happens to the signer, the cleaner and the publisher, cluster-info ends up right.

The server is a dictionary. Writes fail, are overtaken or lose their answer; watches go blind and are listed again; the
process restarts; people create, change and delete tokens, and tamper with the ConfigMap. Then all is quiet, and what is
there is compared with what an independent few lines say should be.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import datetime
import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from handfast import errors
from handfast.api import status
from handfast.bootstrap import cluster_info as documents
from handfast.bootstrap import tokens
from handfast.client import cache
from handfast.controllers import loop, timed, views
from handfast.controllers.joining import bootstrap_signer, cluster_info, signing_tokens, token_cleaner
from handfast.runtime import tasks
from tests.unit.controllers.fake_api import FakeClient
from tests.world.clock import MovableClock, settle

START = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
MAP = ("configmaps", "kube-public", "cluster-info")
IDS = ("aaaaaa", "bbbbbb", "cccccc", "dddddd")
Secrets = dict[str, dict[str, Any]]


class Server(FakeClient):
    """The dictionary, with faults for the writes to come."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []

    async def _faulty(self, write: Callable[[], Any], name: str) -> Any:
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "conflict":
            raise status.conflict("things", "", name)
        if fault == "refused":
            raise status.forbidden("things", "", name, "not now")
        if fault == "unavailable":
            raise errors.Unavailable("no answer")
        if fault == "overtaken" and MAP in self.objects:
            found = self.objects[MAP]
            self.put(MAP[0], MAP[2], MAP[1], data={**(found.get("data") or {}), "jws-kubeconfig-zzzzzz": "theirs"})
        done = await write()
        if fault == "lost reply":
            raise errors.Unavailable("the connection broke")
        return done

    async def create(self, resource: Any, document: Any, **more: Any) -> dict[str, Any]:
        write = super().create
        return dict(await self._faulty(lambda: write(resource, document, **more), "x"))

    async def update(self, resource: Any, document: Any, **more: Any) -> dict[str, Any]:
        write = super().update
        return dict(await self._faulty(lambda: write(resource, document, **more), "x"))

    async def delete(self, resource: Any, name: str, **more: Any) -> dict[str, Any]:
        write = super().delete
        return dict(await self._faulty(lambda: write(resource, name, **more), name))

    def secrets(self) -> Secrets:
        found = {name: item for (plural, _, name), item in self.objects.items() if plural == "secrets"}
        return copy.deepcopy(found)


class Process:
    """The three controllers, and what their watches have shown them so far."""

    def __init__(self, server: Server, clock: MovableClock, servers: tuple[str, ...]) -> None:
        self.server = server
        self.seen: Secrets = {}
        self.config_maps: cache.Informer[views.ConfigMap] = cache.Informer(views.CLUSTER_INFO)
        namespaces: cache.Informer[views.Namespace] = cache.Informer(views.ALL_NAMESPACES)
        namespaces.put(msgspec.convert({"metadata": {"name": "kube-system", "uid": "u"}}, views.Namespace))
        namespaces.end()
        complaints = signing_tokens.Complaints(lambda: None)
        self.tokens = signing_tokens.Tokens(complaints, lambda: signer.queue.add(bootstrap_signer.SIGN))
        handler = bootstrap_signer.BootstrapSigner(server, clock, self.config_maps, self.tokens, complaints)
        signer: loop.Controller[str] = loop.Controller("signer", handler.reconcile, clock=clock)
        signer.needs(self.tokens)
        signer.watches(self.config_maps, lambda _: [bootstrap_signer.SIGN])
        cleaner: loop.Controller[str] = loop.Controller(
            "cleaner", token_cleaner.TokenCleaner(server, clock).reconcile, clock=clock
        )
        self.timers: timed.Timed[token_cleaner.View, str] = timed.Timed(
            lambda item: item.metadata.name, token_cleaner.View.due, cleaner.queue.add_at
        )
        publishing = cluster_info.Publisher(server, clock, namespaces, self.config_maps, servers=servers, ca=b"CA")
        publisher: loop.Controller[str] = loop.Controller("publisher", publishing.reconcile, clock=clock)
        publisher.watches(self.config_maps, lambda _: [cluster_info.KEY])
        publisher.watches(namespaces, lambda _: [cluster_info.KEY])
        self.controllers = (signer, cleaner, publisher)

    def _put(self, document: dict[str, Any]) -> None:
        self.tokens.put(msgspec.convert(document, signing_tokens.View))
        self.timers.put(msgspec.convert(document, token_cleaner.View))

    def list(self) -> None:
        """As after a start, or when a watch has lost its place."""
        self.seen = self.server.secrets()
        for sink in (self.tokens, self.timers, self.config_maps):
            sink.begin()
        for document in self.seen.values():
            self._put(document)
        if MAP in self.server.objects:
            self.config_maps.put(msgspec.convert(self.server.objects[MAP], views.ConfigMap))
        for sink in (self.tokens, self.timers, self.config_maps):
            sink.end()

    def hear(self) -> None:
        """What a watch that works shows."""
        now = self.server.secrets()
        for name, document in now.items():
            if self.seen.get(name) != document:
                self._put(document)
        for name in self.seen.keys() - now.keys():
            self.tokens.remove(msgspec.convert(self.seen[name], signing_tokens.View))
        self.seen = now
        if MAP in self.server.objects:
            self.config_maps.put(msgspec.convert(self.server.objects[MAP], views.ConfigMap))
        else:
            gone = self.config_maps.get(MAP[1], MAP[2])
            if gone is not None:
                self.config_maps.remove(gone)


class Story:
    def __init__(self) -> None:
        self.server = Server()
        self.clock = MovableClock(START)
        self.servers: tuple[str, ...] = ("https://a:1",)
        self.blind = False
        self.process: Process
        self._stack = contextlib.AsyncExitStack()

    async def start(self) -> None:
        await self._stack.aclose()
        self._stack = contextlib.AsyncExitStack()
        self.process = Process(self.server, self.clock, self.servers)
        group = await self._stack.enter_async_context(tasks.Group("story"))
        for controller in self.process.controllers:
            group.start(controller.run(), name=controller.name)
        self.process.list()
        self.blind = False

    async def stop(self) -> None:
        await self._stack.aclose()

    async def step(self, seconds: float = 0.0) -> None:
        for _ in range(3):
            if not self.blind:
                self.process.hear()
            await settle(15)
        await self.clock.advance(seconds)

    async def do(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("token", token_id, secret, seconds, usage):
                until = None if seconds is None else self.clock.now() + datetime.timedelta(seconds=seconds)
                made = tokens.secret_document(tokens.Token(token_id, secret * 16), usages=usage, expiration=until)
                self.server.put(
                    "secrets", made["metadata"]["name"], "kube-system", type=made["type"], data=made["data"]
                )
            case ("delete", token_id):
                self.server.objects.pop(("secrets", "kube-system", tokens.secret_name(token_id)), None)
            case ("tamper", token_id, text):
                data = dict((self.server.objects.get(MAP) or {}).get("data") or {})
                self.server.put(MAP[0], MAP[2], MAP[1], data={**data, f"jws-kubeconfig-{token_id}": text})
            case ("wipe", None):
                self.server.objects.pop(MAP, None)
            case ("wipe", data):
                self.server.put(MAP[0], MAP[2], MAP[1], data=data)
            case ("faults", *kinds):
                self.server.faults += kinds
            case ("blind",):
                self.blind = True
            case ("list",):
                self.process.list()
                self.blind = False
            case ("restart", name):
                self.servers = (f"https://{name}:1",)
                await self.start()
            case ("pass", seconds):
                await self.step(seconds)

    def wanted(self) -> dict[str, str]:
        """The data of the ConfigMap, by other means than the program's."""
        text = documents.build(documents.ClusterInfo(self.servers, b"CA", "u"))
        found = {"kubeconfig": text}
        for secret in self.server.secrets().values():
            data = {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
            if data.get("usage-bootstrap-signing") != "true" or self._expired(data):
                continue
            head = _b64(json.dumps({"alg": "HS256", "kid": data["token-id"]}, separators=(",", ":")).encode())
            signed = f"{head}.{_b64(text.encode())}".encode()
            mac = hmac.new(data["token-secret"].encode(), signed, hashlib.sha256).digest()
            found[f"jws-kubeconfig-{data['token-id']}"] = f"{head}..{_b64(mac)}"
        return found

    def _expired(self, data: dict[str, str]) -> bool:
        until = data.get("expiration")
        return until is not None and datetime.datetime.fromisoformat(until) <= self.clock.now()

    def expired(self) -> list[str]:
        decoded = {
            name: {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
            for name, secret in self.server.secrets().items()
        }
        return [name for name, data in decoded.items() if self._expired(data)]


def _b64(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).decode().rstrip("=")


ids = st.sampled_from(IDS)
steps = st.one_of(
    st.tuples(
        st.just("token"),
        ids,
        st.sampled_from("xy"),
        st.sampled_from([None, 1, 5, 30, 3000]),
        st.sampled_from([(), ("signing",), ("signing", "authentication")]),
    ),
    st.tuples(st.just("delete"), ids),
    st.tuples(st.just("tamper"), st.sampled_from([*IDS, "zzzzzz"]), st.sampled_from(["", "garbage"])),
    st.tuples(st.just("wipe"), st.sampled_from([None, {}, {"kubeconfig": "theirs"}])),
    st.lists(
        st.sampled_from(["conflict", "unavailable", "refused", "overtaken", "lost reply"]), min_size=1, max_size=4
    ).map(lambda kinds: ("faults", *kinds)),
    st.just(("blind",)),
    st.just(("list",)),
    st.tuples(st.just("restart"), st.sampled_from("abc")),
    st.tuples(st.just("pass"), st.sampled_from([0.0, 0.1, 2.0, 40.0])),
)


async def tell(story: Story, chosen: list[tuple[Any, ...]]) -> None:
    await story.start()
    try:
        for step in chosen:
            await story.do(step)
            if step[0] != "pass":
                # Not always long enough for the controllers to keep up.
                await settle(2)
        # Faults end, and every watch finds its place again.
        story.server.faults.clear()
        story.process.list()
        story.blind = False
        # Longer than the longest pause between two tries.
        for _ in range(8):
            await story.step(60)
        await story.step()
        assert story.server.objects[MAP]["data"] == story.wanted()
        assert story.expired() == []
        # At rest nothing is written, but at an expiry.
        before = len(story.server.calls)
        while len(story.server.secrets()) and any("expiration" in s["data"] for s in story.server.secrets().values()):
            await story.step(100)
        await story.step()
        assert story.server.objects[MAP]["data"] == story.wanted()
        calls = len(story.server.calls) - before
        story.process.list()
        await story.step(500)
        assert len(story.server.calls) - before == calls
    finally:
        await story.stop()


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, max_size=25))
# Made and deleted between two lists: no watch ever shows it.
@example([("blind",), ("pass", 0.0), ("wipe", None)])
def test_whatever_happens_it_converges(chosen: list[tuple[Any, ...]]) -> None:
    asyncio.run(tell(Story(), chosen))


async def test_a_signature_goes_at_the_instant_of_expiry_without_the_cleaner_or_an_event() -> None:
    story = Story()
    await story.start()
    try:
        await story.do(("token", "aaaaaa", "x", 3, ("signing",)))
        await story.step()
        assert "jws-kubeconfig-aaaaaa" in story.server.objects[MAP]["data"]
        # Nobody hears anything from here on, and nothing can be deleted.
        await settle(20)
        story.process.hear()
        await settle(20)
        story.blind = True

        def keep(verb: str, plural: str, _name: str) -> None:
            if (verb, plural) == ("delete", "secrets"):
                raise errors.Unavailable("no")

        story.server.before = keep
        await story.clock.advance(2.99)
        assert "jws-kubeconfig-aaaaaa" in story.server.objects[MAP]["data"]
        await story.clock.advance(0.01)
        await settle(30)
        assert set(story.server.objects[MAP]["data"]) == {"kubeconfig"}
        assert story.expired() == ["bootstrap-token-aaaaaa"]
    finally:
        await story.stop()
