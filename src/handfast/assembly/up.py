# SPDX-License-Identifier: Apache-2.0
"""`handfast up`, put together: one directory, one socket, one child that prepares and the roles that serve.

The order is chosen so that what can be wrong is found out before anything starts: the directory and its owner, the
configuration, the ports (where nobody named one and it is taken, another is chosen and told); then keys and certificates, in a child of their own, so that the supervisor never loads the
crypto library. That child runs again every hour, and when the first certificate is due to be renewed: whoever uses a
file notices that it has changed. The objects that a new cluster needs to be joined are made by another such child, `handfast init`, over
the API, while the controllers start. Where a mesh is wanted, `handfast mesh install` follows, then the tokens of its accounts, and only then its
services start. It does not keep the children running: see `supervisor`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import ssl
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from handfast import errors
from handfast.api import durations
from handfast.assembly import config, mesh_accounts
from handfast.assembly import parts as parts_module
from handfast.assembly import ports as ports_module
from handfast.controllers import names as controller_names
from handfast.datadir import endpoints, layout
from handfast.runtime import addresses, children, files, supervisor, tls, watchdog

_HOUR: Final = 3600.0
_LEAST: Final = 5.0
_NOT_MADE: Final = "the objects that machines need to join were not made"
_NOT_INSTALLED: Final = "the mesh was not installed"


class Console(Protocol):
    """Who tells the person at the terminal."""

    def event(self, level: str, text: str, **fields: Any) -> None: ...

    def prepared(self, printed: bytes) -> None:
        """Called each time the directory was looked after, with what `handfast serve prepare` printed."""
        ...

    def introduced(self, printed: bytes) -> None:
        """Called before `ready` with what `handfast init` printed, where it could do its work."""
        ...

    def ready(self, endpoints_file: endpoints.Endpoints) -> None: ...


@dataclass(frozen=True, slots=True)
class FirstToken:
    """The token of a new cluster (None: a random one, empty: none), and how long it lives. It does not print."""

    text: str | None = field(default=None, repr=False)
    ttl: str = "24h"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleFlags:
    """What the configuration says to one role alone, as its flags; and the flags of ports that nobody named."""

    apiserver: Sequence[str] = ()
    controllers: Sequence[str] = ()
    machine_config: Sequence[str] = ()
    first_objects: Sequence[str] = ()
    unnamed: Collection[str] = ()


NOTHING_MORE: Final = RoleFlags()


@dataclass(slots=True)
class _Running:
    """The supervisor's events, with `endpoints.json` kept up to date."""

    directory: pathlib.Path
    console: Console
    at: endpoints.Endpoints

    def event(self, level: str, text: str, **fields: Any) -> None:
        self.console.event(level, text, **fields)

    def prepared(self, printed: bytes) -> float | None:
        self.console.prepared(printed)
        # A little late, since a renewal a moment too early is none; and not without a pause, however short the lives.
        return min(_HOUR, max(_LEAST, float(json.loads(printed)["seconds"]) + 1.0))

    def changed(self, pids: Mapping[str, int]) -> None:
        self.at = dataclasses.replace(self.at, pids=dict(pids))
        try:
            self._write()
        except errors.HandfastError as error:
            # A full disk is a reason to complain, not to stop what runs.
            self.console.event("warning", error.message, reason=error.reason)

    def _write(self) -> None:
        """No file is better than one that names the dead; and where a disk is full, the old one makes room."""
        try:
            endpoints.write(self.directory, self.at)
        except errors.HandfastError:
            endpoints.remove(self.directory)
            endpoints.write(self.directory, self.at)

    def ready(self) -> None:
        self.console.ready(self.at)


@dataclass(slots=True)
class _Readiness:
    """Asks the API server, trusting the directory's CA, which exists only once the directory is prepared."""

    address: addresses.Address
    certificate: pathlib.Path
    context: ssl.SSLContext | None = field(default=None)

    async def __call__(self) -> bool:
        if self.context is None:
            self.context = tls.client_context(files.read(self.certificate, limit=1 << 20))
        return await supervisor.answers(self.address, "/readyz", self.context)


@dataclass(frozen=True, slots=True)
class _Errand:
    """Has a child do its work over the API.

    A failure is told, as `otherwise`, and stops nobody: what is not there is made at the next start.
    """

    role: children.Role
    console: Console
    otherwise: str
    take: Callable[[bytes], None] = lambda _printed: None

    async def __call__(self) -> None:
        try:
            self.take(await children.run_once(self.role))
        except errors.HandfastError as error:
            self.console.event("warning", f"{self.otherwise}: {error.message}", reason=error.reason)


@dataclass(slots=True)
class _After:
    """Has errands run, once and in order, while a role starts; then asks that role."""

    errands: list[Callable[[], Awaitable[None]]]
    then: Callable[[], Awaitable[bool]]

    async def __call__(self) -> bool:
        while self.errands:
            await self.errands.pop(0)()
        return await self.then()


@contextlib.contextmanager
def _introduction(
    place: layout.Layout, servers: Sequence[str], token: FirstToken, flags: Sequence[str]
) -> Iterator[children.Role]:
    """The child that makes the first objects; a token goes through a pipe, since everyone can read arguments."""
    words = ["init", "--first-start", "--kubeconfig", str(place.admin_kubeconfig), *servers, *flags]
    words += ["--token-ttl", token.ttl]
    if not token.text:
        none = () if token.text is None else ("--token", "")
        yield children.Role(name="first objects", argv=children.command(*words, *none, "-o", "json"))
        return
    reading, writing = os.pipe()
    try:
        with open(writing, "wb") as pipe:  # noqa: PTH123 - it has no path
            pipe.write(token.text.encode("ascii"))
        words += ["--token-file", f"/dev/fd/{reading}", "-o", "json"]
        yield children.Role(name="first objects", argv=children.command(*words), descriptors=(reading,))
    finally:
        os.close(reading)


def _timing(chosen: config.Configuration) -> supervisor.Timing:
    seconds = chosen.watchdog_seconds
    return supervisor.Timing(silence=watchdog.Patience.of(seconds) if seconds else None)


def _preparation(*flags: str, descriptors: tuple[int, ...]) -> children.Role:
    """What has to be done before anything serves."""
    argv = children.command("serve", "prepare", *flags)
    return children.Role(name="preparation", argv=argv, descriptors=descriptors, again=("--again",))


def _flag(name: str, value: bool) -> str:
    return f"--{name}" if value else f"--no-{name}"


def _apiserver(shared: parts_module.Shared, listen: ports_module.Port, words: Sequence[str]) -> children.Role:
    """The API server, on a socket that stays across its restarts."""
    place, number = shared.place, listen.sock.fileno()
    return children.Role(
        name="apiserver",
        argv=children.command(
            *("serve", "apiserver", "--dir", str(place.root), *listen.words, "--listen-fd", str(number), *words)
        ),
        descriptors=(*shared.descriptors, number),
        ready=_Readiness(listen.at, place.ca_certificate),
        livez=functools.partial(watchdog.Livez, listen.at, tls.unsafe_unverified_context()),
    )


def _controllers(
    place: layout.Layout, chosen: config.Configuration, admin: ports_module.Port, words: Sequence[str]
) -> children.Role:
    selection = (*chosen.controllers, *(controller_names.MACHINES if chosen.machines else ()))
    return children.Role(
        name="controllers",
        argv=children.command(
            *("serve", "controllers", "--dir", str(place.root), "--kubeconfig", str(place.controllers_kubeconfig)),
            *(*admin.handed, "--controllers", ",".join(selection)),
            *("--ledger-retention-days", str(chosen.ledger_retention_days)),
            *("--proxy-protocol-from", chosen.proxy_protocol_from),
            *("--join-within", durations.text(chosen.join_within)),
            *(_flag("leader-elect", chosen.leader_elect), _flag("protect-living-nodes", chosen.protect_living_nodes)),
            *words,
        ),
        livez=functools.partial(watchdog.Livez, admin.at, None),
    )


_Errands = list[Callable[[], Awaitable[None]]]
_Beside = list[Callable[[], Coroutine[Any, Any, None]]]


def _mesh_errands(
    place: layout.Layout, console: Console, services: Sequence[parts_module.Part]
) -> tuple[_Errands, _Beside]:
    """The mesh is installed before its services start, which follow objects that they have no right to until then.

    Their tokens come next, and are kept fresh beside them.
    """
    if not services:
        return [], []
    words = ["mesh", "install", "--kubeconfig", str(place.admin_kubeconfig)]
    for part in services:
        words += parts_module.installation(part)
    install = children.Role(name="mesh install", argv=children.command(*words))
    child = children.Role(
        name="tokens of the mesh", argv=children.command("serve", "mesh-accounts", "--dir", str(place.root))
    )
    accounts = mesh_accounts.Accounts(child, console.event, functools.partial(parts_module.are_ready, services))
    return [_Errand(install, console, _NOT_INSTALLED), accounts.renew], [accounts.run]


async def run(
    place: layout.Layout,
    lock: files.DirectoryLock,
    chosen: config.Configuration,
    console: Console,
    timing: supervisor.Timing | None = None,
    *,
    role_flags: RoleFlags = NOTHING_MORE,
    token: FirstToken | None = None,
) -> None:
    """Serve until a signal stops it. The directory is locked and the configuration is good; ports are found out here."""
    # The directory is ours, so that whoever wrote this is dead.
    endpoints.remove(place.root)
    with contextlib.ExitStack() as stack:
        ports = ports_module.Ports(stack, chosen, role_flags.unnamed, console.event)
        listen, admin = ports.take("listen"), ports.take("adminListen")
        api = listen.at
        level = ("--log-level", chosen.log_level)
        shared = parts_module.Shared(place=place, level=level, descriptors=(lock.descriptor,))
        fleet = [parts_module.fleet(ports, shared, role_flags.machine_config)] if chosen.machines else []
        services = parts_module.mesh(ports, shared, console.event) if chosen.mesh else ()
        pages = [parts_module.console(ports, shared)] if chosen.console else []
        parts = [*fleet, *pages, *services]
        running_at = endpoints.Endpoints(
            apiserver=api.url("https"),
            controllers_admin=admin.at.url("http"),
            services={name: address for part in parts for name, address in part.urls.items()},
            supervisor=os.getpid(),
        )
        outside = chosen.advertise or addresses.outward(api)
        advertise = [word for address in outside for word in ("--advertise", str(address))]
        # Newcomers are told how to get here, even if it is only from this machine.
        published = advertise or ["--advertise", str(api)]
        prepared = [*advertise, "--store", chosen.store, *(word for part in parts for word in part.preparation)]
        first = _preparation("--dir", str(place.root), *listen.words, *prepared, descriptors=shared.descriptors)
        apiserver = _apiserver(shared, listen, (*advertise, "--store", chosen.store, *level, *role_flags.apiserver))
        introduction = stack.enter_context(
            _introduction(place, published, token or FirstToken(), role_flags.first_objects)
        )
        more, beside = _mesh_errands(place, console, services)
        errands: _Errands = [_Errand(introduction, console, _NOT_MADE, console.introduced), *more]
        controllers = dataclasses.replace(
            _controllers(place, chosen, admin, (*published, *level, *role_flags.controllers)),
            descriptors=(*shared.descriptors, admin.sock.fileno()),
            ready=_After(errands, functools.partial(supervisor.answers, admin.at, "/readyz", None)),
        )
        roles = [apiserver, controllers, *(part.role for part in parts)]
        try:
            running = _Running(place.root, console, running_at)
            await supervisor.Supervisor(roles, running, timing or _timing(chosen), first, beside=beside).run()
        finally:
            endpoints.remove(place.root)
