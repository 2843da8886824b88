# SPDX-License-Identifier: Apache-2.0
"""What a stream can be about: the endpoints of a Service's port, or the profile of a Service or of an address. What each says at an instant.

`rules.mesh.endpoints` decides. A computation is a generator: it pauses now and then, so that a large Service holds nobody up.

1. A Service that is a name elsewhere has no endpoints here: it is refused.
2. An endpoint that should have an identity and has none is in no answer. A profile of such an address is refused, with a code that proxies try
   again on: where they are told "no profile", they would go there in plaintext.
3. An address that is no Pod's and no Service's has a profile without identity: it is not of this cluster.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Final

import msgspec

from handfast.client import events
from handfast.mesh.destination import lookups as lookups_module
from handfast.mesh.destination import messages
from handfast.rules.mesh import authorities, endpoints, meshed, port_lists, views
from handfast.wire import server

_PAUSE_AFTER: Final = 256
INVALID: Final = "INVALID_ARGUMENT"
NOT_FOUND: Final = "NOT_FOUND"
UNAVAILABLE: Final = "UNAVAILABLE"

Rows = Mapping[authorities.Address, endpoints.Endpoint]


class Endpoints(msgspec.Struct, frozen=True):
    """The endpoints of a port at an instant; without a Service there are none. `refusal` ends the stream: code and text."""

    wanted: authorities.Service
    exists: bool = True
    rows: Rows = msgspec.field(default_factory=dict)
    withheld: tuple[endpoints.Withheld, ...] = ()
    about: events.Regarding | None = None
    refusal: tuple[str, str] | None = None

    def first(self) -> messages.Messages:
        """What a new stream is told."""
        rows = list(self.rows.values())
        return messages.Messages(messages.added(rows, self._labels) if rows else messages.none(exists=self.exists))

    def since(self, before: Endpoints) -> messages.Messages:
        """What a stream is told that knows an earlier answer."""
        added, removed = endpoints.changes(before.rows, self.rows)
        parts = [*messages.removed(removed), *messages.added(added, self._labels)]
        # Whether there is a Service is news of its own.
        if not self.rows and self.exists != before.exists:
            parts += messages.none(exists=self.exists)
        return messages.Messages(parts)

    @property
    def _labels(self) -> dict[str, str]:
        return {"namespace": self.wanted.namespace, "service": self.wanted.name}


class Profile(msgspec.Struct, frozen=True):
    """A profile at an instant."""

    message: bytes = b""
    withheld: tuple[endpoints.Withheld, ...] = ()
    about: events.Regarding | None = None
    refusal: tuple[str, str] | None = None

    def first(self) -> messages.Messages:
        return messages.Messages([lambda: self.message])

    def since(self, before: Profile) -> messages.Messages:
        return messages.Messages([] if before.message == self.message else [lambda: self.message])


Answer = Endpoints | Profile
Steps = Generator[None, None, Answer]


class ServiceEndpoints(msgspec.Struct, frozen=True):
    """The endpoints of a Service's port."""

    wanted: authorities.Service

    def steps(self, known: lookups_module.Lookups) -> Steps:
        service = known.service(*self.wanted.key)
        if service is None:
            return Endpoints(self.wanted, exists=False)
        # 1. a name elsewhere
        if service.is_external:
            return Endpoints(self.wanted, refusal=_external(self.wanted))
        rows: dict[authorities.Address, endpoints.Endpoint] = {}
        withheld = []
        every: list[endpoints.Row] = []
        for item in known.slices(*self.wanted.key):
            every += endpoints.rows(service, self.wanted, item)
            yield
        for number, row in enumerate(endpoints.chosen(service, every), 1):
            judged = endpoints.judge(row, known)
            # 2. in no answer
            if isinstance(judged, endpoints.Withheld):
                withheld.append(judged)
            else:
                rows[judged.address] = judged
            if number % _PAUSE_AFTER == 0:
                yield
        return Endpoints(self.wanted, True, rows, tuple(withheld), _about(service))


class ServiceProfile(msgspec.Struct, frozen=True):
    """The profile of a Service's port, or of one instance of it."""

    wanted: authorities.Service

    def steps(self, known: lookups_module.Lookups) -> Steps:
        yield from ()
        service = known.service(*self.wanted.key)
        if service is None:
            return Profile(refusal=missing(self.wanted))
        if service.is_external:
            return Profile(refusal=_external(self.wanted))
        return self._instance(service, known) if self.wanted.instance else _of_service(service, self.wanted)

    def _instance(self, service: views.Service, known: lookups_module.Lookups) -> Profile:
        candidates = endpoints.candidates(service, self.wanted, known.slices(*self.wanted.key))
        if not candidates:
            return Profile(
                refusal=(NOT_FOUND, f"Service {self.wanted.name}.{self.wanted.namespace} has no such endpoint")
            )
        judged = endpoints.judge(candidates[0], known)
        if isinstance(judged, endpoints.Withheld):
            return _withheld(judged, _about(service))
        is_opaque = judged.standing.protocol is meshed.Protocol.OPAQUE or meshed.is_opaque(service, self.wanted.port)
        return Profile(messages.endpoint_profile(judged, is_opaque=is_opaque, name=self.wanted.fqdn))


class AddressProfile(msgspec.Struct, frozen=True):
    """The profile of an address: a Service's own, a Pod's, or somebody else's."""

    address: authorities.Address

    def steps(self, known: lookups_module.Lookups) -> Steps:
        yield from ()
        host, port = self.address.host, self.address.port
        pod = None
        try:
            service = endpoints.service_at(host, known)
            if service is not None:
                return _of_service(service, authorities.Service(*service.metadata.key, port))
            pod = endpoints.pod_at(host, known)
            # 3. not of this cluster
            if pod is None:
                plain = endpoints.Endpoint(self.address)
                return Profile(messages.endpoint_profile(plain, is_opaque=port in port_lists.OPAQUE))
            row = endpoints.of_pod(pod, self.address, known)
        except meshed.Withheld as refused:
            about = None if pod is None else _about(pod)
            return _withheld(endpoints.Withheld(self.address, refused.why, refused.message), about)
        return Profile(messages.endpoint_profile(row, is_opaque=meshed.is_opaque(pod, port)))


Subject = ServiceEndpoints | ServiceProfile | AddressProfile


def missing(wanted: authorities.Service) -> tuple[str, str]:
    """The refusal of a Service that is not there."""
    return NOT_FOUND, f"Service {wanted.name}.{wanted.namespace} not found"


def refusal(pair: tuple[str, str]) -> server.Refusal:
    code, text = pair
    return server.Refusal(code, text, 1000 if code == UNAVAILABLE else None)


def _of_service(service: views.Service, wanted: authorities.Service) -> Profile:
    return Profile(messages.service_profile(service, wanted))


def _external(wanted: authorities.Service) -> tuple[str, str]:
    return (
        INVALID,
        f"Invalid authority: {wanted.fqdn}:{wanted.port}: Service {wanted.name}.{wanted.namespace} is an ExternalName",
    )


def _withheld(row: endpoints.Withheld, about: events.Regarding | None) -> Profile:
    # 2. a code that proxies try again on
    return Profile(withheld=(row,), about=about, refusal=(UNAVAILABLE, f"{row.address} is withheld: {row.text}"))


def _about(item: views.Service | views.Pod) -> events.Regarding:
    meta = item.metadata
    kind = "Service" if isinstance(item, views.Service) else "Pod"
    return events.Regarding(api_version="v1", kind=kind, name=meta.name, namespace=meta.namespace, uid=meta.uid)
