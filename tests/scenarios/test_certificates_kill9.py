# SPDX-License-Identifier: Apache-2.0
"""The approver and the signer are killed with SIGKILL at each of their API calls; the request gets its certificate.

Run as a program it is the victim: both controllers in one process, against the server of the test, which kills itself at
the Nth moment: each call has two, before it is sent, and when its answer is there and nobody has acted on it.

It proves, for each moment: after a restart the request is approved once and has one certificate, for its own key; that
certificate is in the ledger; and the ledger is whole. It says nothing of the API server, which goes on all the time.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import itertools
import os
import pathlib
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from handfast.api import signer_names
from handfast.assembly import controllers
from handfast.client import api, cache, connection, transport
from handfast.controllers import loop
from handfast.controllers.certificates import approver, signer
from handfast.controllers.certificates import authorities as signing_authorities
from handfast.pki import certificates, keys, pem
from handfast.rules.ledger import entries, verification
from handfast.rules.ledger import segments as ledger
from handfast.runtime import clock as clocks
from handfast.runtime import tasks

CSRS = api.Resource("certificates.k8s.io", "v1", "certificatesigningrequests", False)


# The victim


class Counted(transport.Transport):
    """Dies at the Nth moment."""

    fatal = 0
    moments = itertools.count(1)

    def _moment(self) -> None:
        if next(self.moments) == self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    async def request(self, *arguments: Any, **more: Any) -> bytes:
        self._moment()
        answer = await super().request(*arguments, **more)
        self._moment()
        return answer

    @contextlib.asynccontextmanager
    async def stream(self, *arguments: Any, **more: Any) -> AsyncIterator[transport.Body]:
        self._moment()
        async with super().stream(*arguments, **more) as body:
            self._moment()
            yield body


async def victim(server: str, directory: str, name: str, fatal: int) -> None:
    """Work until the request has its certificate, unless it dies before; prints how many moments there were."""
    Counted.fatal = fatal
    clock, root = clocks.SystemClock(), pathlib.Path(directory)
    place = dataclasses.replace(connection.load(str(root / "controllers.conf")), server=server)
    own = signing_authorities.Files(certificate=root / "pki" / "ca.crt", key=root / "pki" / "ca.key", bundle=True)
    authorities = signing_authorities.SigningAuthorities(dict.fromkeys(signer_names.SIGNERS, own), clock)
    builds = controllers.known(b"-", authorities=authorities)
    link, watcher = Counted(place, clock=clock), transport.Transport(place, clock=clock)
    client = api.Client(link)
    async with tasks.Group("victim") as group:
        informers = cache.Informers(client, clock)
        context = loop.Context(client=client, informers=informers, clock=clock)
        made = [builds[each](context) for each in (approver.NAME, signer.NAME)]
        informers.start(group)
        for controller in made:
            group.start(controller.run(), name=controller.name)
        while "certificate" not in ((await api.Client(watcher).get(CSRS, name)).get("status") or {}):
            await clock.sleep(0.01)
        # The answer that brought it may still be on its way to the signer.
        await clock.sleep(0.2)
    await link.close()
    await watcher.close()
    os.write(1, f"\nmoments: {next(Counted.moments) - 1}\n".encode())


if __name__ == "__main__":
    asyncio.run(victim(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))


# The judge


async def run(story: Any, name: str, fatal: int) -> tuple[int | None, int]:
    """A victim's exit code, and how many moments it lived through; none if it was killed."""
    words = (__file__, story.world.base, str(story.world.place.root), name, str(fatal))
    process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=asyncio.subprocess.PIPE)
    printed, _ = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, int(printed.decode().partition("moments: ")[2] or 0)


@pytest.mark.slow
async def test_killed_at_every_call(tmp_path: pathlib.Path) -> None:
    from tests.scenarios import certified as c
    from tests.scenarios import controlled
    from tests.world import world as worlds
    from tests.world.clock import MovableClock

    clock = clocks.SystemClock()
    async with worlds.world(tmp_path / "world", clock=clock) as world, controlled.connected(world) as client:
        # The world's clock is the real one here: the victim has no other. The story's own is not used.
        story = c.Story(world, client, MovableClock())
        await story.bind("file", c.JOINERS)
        await story.bind("nodeclient", c.JOINERS)
        context = story.joiner()

        async def ask(number: int) -> keys.PrivateKey:
            key = keys.generate(keys.Kind.P256)
            await story.ask(c.request(f"n{abs(number)}", name=f"csr-{number}", key=key), context)
            return key

        async def settled(name: str) -> dict[str, Any]:
            async with asyncio.timeout(30):
                while "certificate" not in (found := await story.csr(name)).get("status", {}):
                    await asyncio.sleep(0.01)
            return found

        # The first of all begins the ledger; the second finds it there, as all others will.
        for number in (-1, 0):
            await ask(number)
            code, count = await run(story, f"csr-{number}", 0)
            # List, watch, review, approval, the ledger's read and write, status: each has two moments.
            assert (code, count >= 14) == (0, True), count
        for number in range(1, count + 1):
            key = await ask(number)
            name = f"csr-{number}"
            assert await run(story, name, number) == (-signal.SIGKILL, 0), f"moment {number}"
            async with c.running(world, approver.NAME, signer.NAME):
                found = await settled(name)
            assert [row["type"] for row in found["status"]["conditions"]] == ["Approved"], f"moment {number}"
            issued = certificates.read(pem.one(base64.b64decode(found["status"]["certificate"]), pem.CERTIFICATE))
            assert issued.public_key.spki == key.public.spki
            segments = [ledger.read(each) for each in await client.list(c.LOGS)]
            lines = [entries.decode_stored(line) for segment in segments for line in segment.entries]
            of_this = [entry for entry in lines if entry.request == name]
            # One more at most, of the signature that was lost with the victim.
            assert issued.fingerprint in {entry.certificate for entry in of_this}
            assert len(of_this) <= 2
            assert verification.verify(segments) == ()
