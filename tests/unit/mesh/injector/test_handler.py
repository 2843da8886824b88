# SPDX-License-Identifier: Apache-2.0
"""A review over HTTP: what is answered, what is refused, and what a fault comes to."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator

import pytest

from handfast import errors
from handfast.mesh.injector import handler, reports
from handfast.rules.mesh import admission, admission_reviews, injector_pair, settings, webhook
from handfast.serving import server_tls
from tests.unit.controllers.fake_api import failing
from tests.unit.mesh.injector import injecting
from tests.unit.rules.mesh import pods


@pytest.fixture
def world() -> injecting.World:
    world = injecting.World()
    world.install()
    return world


async def test_a_pod_gets_its_patch(world):
    async with world.serving() as asked:
        response = await asked.review(pods.pod())
    assert (response["uid"], response["allowed"], response["patchType"]) == ("u-1", True, "JSONPatch")
    operations = json.loads(base64.b64decode(response["patch"]))
    assert operations[-1]["value"]["name"] == "linkerd-proxy"


async def test_other_paths_and_methods_are_nobodys(world):
    async with world.serving() as asked:
        assert (await asked.send(b"{}", "/other"))[0] == 404
        assert (await asked.send(b"", method="GET"))[0] == 405
        assert await asked.send(b"") == (200, "")


async def test_what_is_no_review_is_a_bad_request_with_its_reason(world):
    async with world.serving() as asked:
        code, text = await asked.send(injecting.review(pods.pod(), uid=""))
    assert code == 400
    assert text == "invalid admission review request: request.uid must have 1 to 253 characters (NoUid)\n"


async def test_a_body_over_the_bound_is_refused_before_it_is_read(world):
    async with world.serving() as asked:
        reader, writer = await asyncio.open_connection(*asked.url.removeprefix("http://").split(":"))
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (admission_reviews.MAX_BYTES + 1))
        # Nothing of it is sent, and the answer is there.
        assert b" 413 " in await reader.readline()
        writer.close()
        await writer.wait_closed()


async def test_bodies_have_a_bound_together(world, monkeypatch):
    monkeypatch.setattr(handler, "_MOST_HELD", 1000)
    go_on = asyncio.Event()

    async def slow(size: int) -> AsyncIterator[bytes]:
        yield b" " * size
        await go_on.wait()
        yield b" "

    async with world.serving() as asked:
        first = asyncio.create_task(asked.send(slow(900)))
        while not world.handler._held:
            await asyncio.sleep(0.01)
        refused = reports.REVIEWS.labels("other", "failed", "TooManyRequests")._value
        before = refused.get()
        second = asyncio.create_task(asked.send(slow(200)))
        while refused.get() == before:
            await asyncio.sleep(0.01)
        go_on.set()
        assert (await second)[0] == 429
        assert (await first)[0] == 400
    assert world.handler._held == 0


async def test_without_settings_it_is_not_ready_and_refuses_nobody():
    world = injecting.World()
    async with world.serving() as asked:
        code, text = await asked.send(injecting.review(pods.pod()))
    assert code == 503
    assert "the injector is not ready: " in text


async def test_a_fault_is_no_refusal(world, monkeypatch):
    def broken(*_):
        raise KeyError("a fault")

    monkeypatch.setattr(admission, "judge", broken)
    async with world.serving() as asked:
        code, text = await asked.send(injecting.review(pods.pod()))
    assert (code, text) == (500, "500 Internal Server Error\n")
    assert reports.REVIEWS.labels("other", "failed", "InternalError")._value.get() >= 1


async def test_an_api_server_that_does_not_answer_is_no_refusal(world):
    world.client.before = failing(errors.Unavailable("the server hangs", reason="Timeout"))
    async with world.serving() as asked:
        code, text = await asked.send(injecting.review(pods.pod(), namespace="unknown"))
    assert (code, text) == (503, "503 the server hangs\n")


async def test_an_answer_holds_no_secret(world):
    await world.pair._look()
    world.deliver()
    async with world.serving() as asked:
        code, text = await asked.send(injecting.review(pods.pod()))
    assert code == 200
    patch = base64.b64decode(json.loads(text)["response"]["patch"]).decode()
    assert "PRIVATE KEY" not in patch
    secret = world.client.objects["secrets", injecting.NAMESPACE, webhook.PAIR]["data"]
    assert not any(value in patch for key, value in secret.items() if key.endswith(".key"))


async def test_events_are_bounded(world):
    for number in range(reports.MOST_WAITING + 50):
        owner = {"apiVersion": "v1", "kind": "X", "name": f"o-{number}", "uid": "u", "controller": True}
        document = pods.pod()
        document["metadata"]["ownerReferences"] = [owner]
        read = admission_reviews.read(injecting.review(document))
        world.reports.note(
            read, admission.judge(read, world.around.plan, admission.Around(annotations=injecting.ENABLED))
        )
    assert world.reports._waiting.qsize() == reports.MOST_WAITING


async def test_older_tls_is_refused(world):
    pair = injector_pair.make(webhook.server_name("linkerd"), settings.Settings(), world.clock.now())
    tls = server_tls.ServerTLS(lambda: injector_pair.shown(pair), world.clock, minimum=ssl.TLSVersion.TLSv1_3)
    async with world.serving(tls) as asked:
        host, port = asked.url.removeprefix("http://").split(":")
        context = ssl.create_default_context(
            cadata=pair.certificate_pem.decode().split("-----END CERTIFICATE-----\n", 1)[1]
        )
        _, writer = await asyncio.open_connection(
            host, port, ssl=context, server_hostname=webhook.server_name("linkerd")
        )
        assert writer.get_extra_info("ssl_object").version() == "TLSv1.3"
        writer.close()
        await writer.wait_closed()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection(host, port, ssl=context, server_hostname=webhook.server_name("linkerd"))
