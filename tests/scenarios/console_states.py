# SPDX-License-Identifier: Apache-2.0
"""Consoles whose API server is in a bad way: behind something that spoils its answers, and of an operator who may read little. They are run in a thread.

The API server is that of a real control plane, and what a page says of it comes of its answers. Nothing is put into the console.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass

from handfast.assembly import console as assembly
from handfast.check import look as looking
from handfast.client import api, connection
from handfast.console import looking as tellings
from handfast.console import opening
from handfast.datadir import layout
from handfast.pki import names
from handfast.rules.diagnoses import facts
from handfast.rules.mesh import control_plane
from handfast.runtime import clock as clocks
from tests.scenarios import console_world, up_world
from tests.unit.console import between, served
from tests.world import kubeconfigs

# An operator who may read little.
FEW = "anna"


@dataclass(frozen=True, slots=True)
class Standing:
    """A console behind `relay`, and one of an operator with few rights."""

    relay: between.Between
    spoiled: console_world.Served
    few_rights: console_world.Served
    loop: asyncio.AbstractEventLoop

    def do(self, work: Callable[[], None]) -> None:
        """Something with the relay, in its thread."""
        done: futures.Future[None] = futures.Future()

        def inside() -> None:
            work()
            done.set_result(None)

        self.loop.call_soon_threadsafe(inside)
        done.result(30)


def _looker(directory: pathlib.Path) -> assembly.Look:
    """As `handfast console` looks from a machine that has nothing of the control plane."""

    async def look(client: api.Client, used: connection.Connection, tell: tellings.Tell) -> facts.Facts:
        target = looking.Target(
            client=client,
            used=used,
            kubeconfig="the kubeconfig",
            directory=directory,
            mesh_namespace=control_plane.NAMESPACE,
        )
        return await looking.look(target, clocks.SystemClock(), tell, looking.BUT_NODES)

    return look


def _of(browser: served.Browser) -> console_world.Served:
    # A code is made of the time and a key, in whatever thread.
    return console_world.Served(browser.base, lambda: opening.address(browser.base, browser.codes.code()))


def _context(place: layout.Layout) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(place.apiserver_certificate, place.apiserver_key)
    return context


async def _stand(
    plane: up_world.Up, directory: pathlib.Path, ready: futures.Future[Standing], over: asyncio.Event
) -> None:
    place, server, clock = layout.Layout.at(plane.directory), plane.facts["apiserver"], clocks.SystemClock()
    look = _looker(directory / "nothing")
    anna = names.Subject(common_name=FEW, organizations=("the night shift",))
    few = kubeconfigs.of_subject(place, server, anna, directory / "few.conf", clock.now())
    async with between.in_front_of(place, server, _context(place)) as relay:
        relay.limit = ""
        spoiled = directory / "spoiled.conf"
        spoiled.write_text(place.admin_kubeconfig.read_text().replace(server, relay.url))
        async with served.standing(spoiled, look, clock) as one, served.standing(few, look, clock) as other:
            ready.set_result(Standing(relay, _of(one), _of(other), asyncio.get_running_loop()))
            await over.wait()


@contextlib.contextmanager
def standing(plane: up_world.Up, directory: pathlib.Path) -> Iterator[Standing]:
    """… while the block runs."""
    ready: futures.Future[Standing] = futures.Future()
    over = asyncio.Event()

    def run() -> None:
        try:
            asyncio.run(_stand(plane, directory, ready, over))
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
            raise

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    made = ready.result(60)
    try:
        yield made
    finally:
        made.loop.call_soon_threadsafe(over.set)
        thread.join(60)
