# SPDX-License-Identifier: Apache-2.0
"""What `up` runs beside the API server and the controllers, where it is wanted: a row each. It starts nothing.

1. A part is ready when it lives. What it needs may take its time, and stops nobody else.
2. Only the mesh as a whole is waited for, since whoever reads that Handfast is ready expects that a Pod gets its proxy. After half a minute
   it is told who is not ready, and everything goes on.
3. Every part is handed the sockets of its ports, which stay across its restarts.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from handfast.assembly import ports as ports_module
from handfast.datadir import layout
from handfast.rules.mesh import control_plane
from handfast.runtime import addresses, children, supervisor, watchdog
from handfast.runtime import clock as clocks

_LOCAL = "127.0.0.1"
# Half of what the supervisor gives a role to be ready in.
_PATIENCE: Final = 30.0
_NOT_READY: Final = "the mesh is not ready, and Pods that are made now may get no proxy; see `handfast mesh check`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What every child is told: the directory and the level of the log; and the descriptors that it has."""

    place: layout.Layout
    level: Sequence[str]
    descriptors: tuple[int, ...]

    def role(
        self, name: str, words: Sequence[str], ports: Sequence[ports_module.Port], admin: ports_module.Port
    ) -> children.Role:
        """A role that listens at these ports, and serves its health at `admin` (1)."""
        # 3. its sockets are handed to it
        own = (*ports, admin)
        return children.Role(
            name=name,
            argv=children.command("serve", name, "--dir", str(self.place.root), *_handed(own), *words, *self.level),
            descriptors=(*self.descriptors, *(port.sock.fileno() for port in own)),
            ready=functools.partial(supervisor.answers, admin.at, "/livez", None),
            livez=functools.partial(watchdog.Livez, admin.at, None),
        )


def _handed(ports: Sequence[ports_module.Port]) -> list[str]:
    return [word for port in ports for word in port.handed]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One process: its role, its URLs for `endpoints.json`, and where it is asked."""

    role: children.Role
    urls: Mapping[str, str]
    admin: addresses.Address
    # What the directory has to be prepared for.
    preparation: Sequence[str] = ()
    # What workloads are told of it, by the word before `.address`.
    advertised: Mapping[str, addresses.Address] = field(default_factory=dict)


def fleet(ports: ports_module.Ports, shared: Shared, words: Sequence[str]) -> Part:
    """The machine-config server."""
    listen, admin = ports.take("machineConfigListen"), ports.take("machineConfigAdminListen")
    return Part(
        role=shared.role("machine-config", words, (listen,), admin),
        urls={"machineConfig": listen.at.url("https"), "machineConfigAdmin": admin.at.url("http")},
        admin=admin.at,
        preparation=("--machines", *listen.words),
    )


def console(ports: ports_module.Ports, shared: Shared) -> Part:
    """The console, on a socket that it is handed (3): a browser that waits for its restart is not turned away.

    It shows what strangers write, and nobody needs it to be let in: whatever it dies of, the control plane goes on without it.
    """
    listen = ports.take("consoleListen")
    number, place = listen.sock.fileno(), shared.place
    words = (
        "console",
        "--dir",
        str(place.root),
        "--kubeconfig",
        str(place.admin_kubeconfig),
        "--listen",
        str(listen.at),
    )
    return Part(
        role=children.Role(
            name="console",
            argv=children.command(*words, "--listen-fd", str(number), "--key-file", str(place.console_key)),
            descriptors=(*shared.descriptors, number),
            ready=functools.partial(supervisor.answers, listen.at, "/livez", None),
            livez=functools.partial(watchdog.Livez, listen.at, None),
            needed=False,
        ),
        urls={"console": listen.at.url("http")},
        admin=listen.at,
    )


# A process of the mesh -> the doors that it has, the scheme of each, and the account that it logs in as.
_MESH: Mapping[str, tuple[Mapping[str, str], str]] = {
    "identity": ({"identity": ""}, control_plane.IDENTITY),
    "destination": ({"destination": "", "policy": "", "agents": ""}, control_plane.CONTROLLER),
    "injector": ({"injector": "https"}, control_plane.INJECTOR),
}


def mesh(ports: ports_module.Ports, shared: Shared, tell: Callable[..., None]) -> tuple[Part, ...]:
    """The services of the mesh; the last to start waits for all of them."""
    services = [_service(name, ports, shared) for name in _MESH]
    *others, last = services
    whole = Whole(services, tell)
    return (*others, dataclasses.replace(last, role=dataclasses.replace(last.role, ready=whole)))


@dataclass(slots=True)
class Whole:
    """Asks whether the last of these parts lives, and then, for so long, whether all of them do their work (2)."""

    parts: Sequence[Part]
    tell: Callable[..., None]
    clock: clocks.Clock = field(default_factory=clocks.SystemClock)
    _until: float | None = None

    async def __call__(self) -> bool:
        if not await supervisor.answers(self.parts[-1].admin, "/livez", None):
            return False
        waiting = [part.role.name for part in self.parts if not await _works(part)]
        now = self.clock.monotonic()
        if self._until is None:
            self._until = now + _PATIENCE
        if not waiting:
            return True
        if now < self._until:
            return False
        # 2. told, and everything goes on
        self.tell("warning", _NOT_READY, services=", ".join(waiting))
        return True


def _service(name: str, ports: ports_module.Ports, shared: Shared) -> Part:
    doors, account = _MESH[name]
    listen = {door: ports.take(f"{door}Listen") for door in doors}
    admin = ports.take(f"{name}AdminListen")
    login = ("--kubeconfig", str(shared.place.mesh_kubeconfig(account)))
    urls = {
        door: listen[door].at.url(scheme) if scheme else str(listen[door].at.local()) for door, scheme in doors.items()
    }
    return Part(
        role=shared.role(name, login, tuple(listen.values()), admin),
        urls={**urls, f"{name}Admin": admin.at.url("http")},
        admin=admin.at,
        preparation=("--mesh",) if name == "identity" else (),
        advertised={door: _advertised(door, listen[door].at, ports) for door in doors},
    )


def _advertised(door: str, at: addresses.Address, ports: ports_module.Ports) -> addresses.Address:
    """Where a door is, as others are told: what the operator says, else where it listens, by an address that leads there."""
    chosen: addresses.Address | None = getattr(ports.chosen, f"{door}_advertise")
    return chosen or next(iter(addresses.outward(at)), at.local())


def installation(part: Part) -> list[str]:
    """What `mesh install` is told of a service: its address, and an endpoint where that is an IP address."""
    words: list[str] = []
    for door, at in part.advertised.items():
        if door != "injector":
            words += ["--set", f"{door}.address={at}"]
        host = _LOCAL if at.host == "localhost" else at.host
        if addresses.ip_hosts([host]):
            words += ["--endpoint", f"{door}={addresses.Address(host, at.port)}"]
    return words


async def are_ready(parts: Sequence[Part]) -> bool:
    """Whether each of them does its work."""
    for part in parts:
        if not await _works(part):
            return False
    return True


async def _works(part: Part) -> bool:
    return await supervisor.answers(part.admin, "/readyz", None)
