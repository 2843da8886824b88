# SPDX-License-Identifier: Apache-2.0
"""The proxy beside a workload, put together: credentials, the parts of the agent, Envoy as its child, and the admin port.

It runs until it is cancelled. It handles no signals and configures no log: whoever runs it does. What is read from the
environment is read by `rules.mesh`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import structlog

from handfast.proxy import (
    admin,
    announcements,
    credentials,
    edges,
    envoy,
    inbound,
    judgements,
    outbound,
    places,
    port_answers,
    spiffe,
    start_up,
)
from handfast.proxy import agent as agent_module
from handfast.proxy import transparent as transparent_part
from handfast.proxy import trust as trust_module
from handfast.rules.envoy import durations, ports, transparent
from handfast.rules.envoy import outbound as outbound_rules
from handfast.rules.mesh import destinations, port_lists, proxy_clients, proxy_environment, proxy_policy
from handfast.runtime import addresses, descriptors, tasks
from handfast.runtime import clock as clocks
from handfast.wire import ads, certifying, discovering

_PLAIN = "plain"
_log = structlog.get_logger("handfast.proxy")


class Spiffe(msgspec.Struct, frozen=True):
    """Where programs that know SPIFFE get the identity: a socket for this user, or for a group as well."""

    socket: pathlib.Path
    group: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Where connections to the workload arrive, by port, and where those that it opens, and the admin port; without files a plain proxy.

    In transparent mode they are redirected to one place, for any of the Pod's addresses.
    """

    pod_ip: str
    ports: tuple[ports.Port, ...]
    outbound: addresses.Address
    admin_listen: addresses.Address
    files: proxy_environment.ProxyFiles | None
    clients: proxy_clients.Clients | None
    identity_headers: bool = False
    spiffe: Spiffe | None = None
    policy: proxy_policy.ProxyPolicy = dataclasses.field(default_factory=proxy_policy.ProxyPolicy)
    redirected: transparent.Place | None = None
    ips: tuple[str, ...] = ()


class _Identity(msgspec.Struct, frozen=True):
    """What a proxy with an identity has, and a plain one has not."""

    name: str
    credentials: credentials.Credentials
    trust: trust_module.Trust
    clients: proxy_clients.Clients


class _Pieces(msgspec.Struct, frozen=True):
    """What the parts are made of."""

    options: Options
    clock: clocks.Clock
    own: _Identity | None
    sent: ads.Ads
    seen: edges.Edges

    @property
    def name(self) -> str:
        return "" if self.own is None else self.own.name


async def run(options: Options, clock: clocks.Clock) -> None:
    """Serve a workload until cancelled."""
    descriptors.allow_many()
    pieces = _Pieces(options, clock, _identity(options, clock), ads.Ads(clock), edges.Edges(clock))
    _require_free(options)
    with _directory() as directory, addresses.listen(options.admin_listen, "--admin-listen") as probing:
        envoy_options = envoy.Options(node=pieces.name or _PLAIN, directory=directory)
        admin_address = addresses.bound(probing, options.admin_listen)
        agent = _agent(pieces, envoy_options, admin_address)
        listening = pieces.sent.on(envoy_options.agent_socket, pieces.seen.services)
        async with listening, envoy.running(envoy_options, clock) as child:
            own = None if pieces.own is None else pieces.own.credentials
            workload_api = _workload_api(pieces)
            svid = None if workload_api is None else workload_api.svid
            doors = admin.Admin(pieces.name, own, agent, pieces.sent, child, clock, svid)
            async with doors.service.on(probing), _served(pieces, workload_api), tasks.Group("proxy") as group:
                if own is not None:
                    group.start(own.run(), name="credentials")
                group.start(agent.run(), name="agent")
                group.start(pieces.seen.run(child.ask), name="edges")
                numbers = [port.number for port in options.ports]
                _log.info(
                    "the proxy runs", identity=pieces.name, pod=options.pod_ip, ports=numbers, admin=str(admin_address)
                )
                await group.wait()


def _agent(pieces: _Pieces, envoy_options: envoy.Options, admin_address: addresses.Address) -> agent_module.Agent:
    """What Envoy does, part by part. Who may call is known before anything listens."""
    judged, called = _judgements(pieces), _outbound(pieces, envoy_options, admin_address)
    parts = [judged, _inbound(pieces, judged), called]
    pieces.sent.on_demand = called.demand
    judged.subscribe(lambda: called.require_identity(judged.needs_outbound))
    if pieces.own is None:
        return agent_module.Agent(pieces.sent, parts, None, None, pieces.clock)
    own = pieces.own
    return agent_module.Agent(pieces.sent, parts, own.credentials, own.trust, pieces.clock, why_not=judged.why_not)


def _inbound(pieces: _Pieces, judged: judgements.Judgements) -> agent_module.Part:
    """Connections to the workload, of each port, or redirected ones."""
    options = pieces.options
    if options.redirected is not None:
        every = transparent.every(pieces.name, durations.FIRST)
        redirected = transparent.Redirected(place=options.redirected, facts=every, ips=options.ips)
        caught = transparent_part.Inbound(pieces.sent, redirected, functools.partial(judged.rows, ports.EVERY))
        judged.subscribe(caught.judge)
        return caught
    arriving = inbound.Inbound(pieces.sent, options.pod_ip, options.ports, identity=pieces.name, tcp=judged.tcp)
    judged.subscribe(arriving.judge)
    return arriving


def _outbound(pieces: _Pieces, envoy_options: envoy.Options, admin_address: addresses.Address) -> outbound.Outbound:
    """Connections that the workload opens."""
    where, headers = pieces.options.outbound, pieces.options.identity_headers
    return outbound.Outbound(
        pieces.sent,
        _discovery(pieces),
        pieces.clock,
        outbound_rules.Facts(host=where.host, port=where.port, identity_headers=headers),
        own=_home(pieces.options, admin_address),
        ask=functools.partial(envoy.ask, envoy_options.admin_socket),
        place=_calling(pieces.options),
    )


def _calling(options: Options) -> transparent.Place | None:
    """The listener of what the workload calls, in transparent mode."""
    if options.redirected is None:
        return None
    both, own = options.redirected.both, (options.redirected.port,)
    host, port = options.outbound.host, options.outbound.port
    return transparent.Place(host=host, port=port, both=both, own=own, opaque=port_lists.OPAQUE.ranges)


def _home(options: Options, admin_address: addresses.Address) -> destinations.Own:
    """The workload's own addresses, and the ports of the proxy itself."""
    numbers = {options.outbound.port, admin_address.port}
    if options.redirected is not None:
        numbers.add(options.redirected.port)
    hosts = {*options.ips, options.pod_ip, options.outbound.host, admin_address.host} - {""}
    return destinations.Own(hosts=frozenset(hosts), ports=frozenset(numbers))


def _discovery(pieces: _Pieces) -> discovering.Discovery | None:
    """Who is asked where requests go; nobody, where there is no address of a destination service."""
    own = pieces.own
    if own is None or own.clients.destination is None:
        return None
    service = discovering.Service(own.clients.destination.address, own.clients.destination.name)
    return discovering.Discovery(
        service,
        anchors=lambda: own.trust.current,
        pair=lambda: own.credentials.standing().pair,
        clock=pieces.clock,
    )


def _judgements(pieces: _Pieces) -> judgements.Judgements:
    """Who may call: by the control plane, by the policy service, or by the default."""
    options, own, policy = pieces.options, pieces.own, pieces.options.policy
    announcing = answers = None
    if own is not None and own.clients.agents is not None:
        client = own.clients.agents
        announcing = announcements.Announcements(client, own.credentials, own.trust, policy.pod, pieces.clock)
        announcing.edges, pieces.seen.on_news = pieces.seen.rows, announcing.hurry
    if own is not None and own.clients.policy is not None and policy.workload:
        numbers = {port.number for port in options.ports} if options.redirected is None else {*policy.ports}
        if numbers:
            answers = port_answers.PortAnswers(own.clients.policy, own.trust, policy.workload, numbers, pieces.clock)
    return judgements.Judgements(
        pieces.sent,
        options.ports if options.redirected is None else (ports.EVERY,),
        default=policy.default,
        identity_headers=options.identity_headers,
        announcing=announcing,
        answers=answers,
        trust=None if own is None else own.trust,
    )


def _workload_api(pieces: _Pieces) -> spiffe.Spiffe | None:
    """The SPIFFE Workload API, where it is wanted."""
    if pieces.options.spiffe is None or pieces.own is None:
        return None
    return spiffe.Spiffe(pieces.own.credentials, pieces.own.trust, pieces.clock)


def _served(pieces: _Pieces, workload_api: spiffe.Spiffe | None) -> contextlib.AbstractAsyncContextManager[None]:
    """The Workload API on its socket, where there is one."""
    place = pieces.options.spiffe
    if place is None or workload_api is None:
        return contextlib.nullcontext()
    return workload_api.on(place.socket, place.group)


def _require_free(options: Options) -> None:
    places.require_free(options.outbound, places.OUTBOUND)
    for port in options.ports:
        places.require_free(addresses.Address(options.pod_ip, port.number), places.INBOUND)
    if options.redirected is not None:
        places.require_free(addresses.Address(options.redirected.host, options.redirected.port), places.REDIRECTED)


def _identity(options: Options, clock: clocks.Clock) -> _Identity | None:
    if options.files is None or options.clients is None:
        return None
    material = start_up.load(options.files)
    trust = trust_module.of_start(material.anchors, options.files.anchors_file)
    service = certifying.Service(options.clients.identity.address, options.clients.identity.name)
    kept = credentials.Credentials(material, service, trust, clock=clock)
    return _Identity(material.name, kept, trust, options.clients)


@contextlib.contextmanager
def _directory() -> Iterator[pathlib.Path]:
    """For sockets, and for Envoy's first configuration, which has no secret."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="handfast-proxy-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
