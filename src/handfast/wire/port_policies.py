# SPDX-License-Identifier: Apache-2.0
"""A client of the policy service: who may call a port of a Pod, now and whenever that changes. When to call again, the caller knows.

Agents have a channel of their own, which says more. It needs a certificate, and this service needs none: so it is known before the first certificate
whether clients without an identity are let in. What probes ask is told here alone.

1. The service proves its name before it is told anything, and is called in plaintext on loopback only (`channel`).
2. An authorization counts where it is for all networks: Envoy is told of none. One that goes by networks lets in nobody.
3. Clients are everybody, everybody with an identity, names, or what names end in. Anything else lets in nobody.
4. A path is open where a route has it whole, for GET, and everybody may. A path begins with a slash; of longer ones, or of too many, none counts.
5. A name that no certificate can have is refused, and with it the answer [BadPortPolicy].

| who | holding | tries | stopped by | shown in tests/unit/wire/test_port_policies.py |
|---|---|---|---|---|
| another controller | rules that go by networks | be taken to let in everybody | 2 | test_what_goes_by_networks_lets_in_nobody |
| … | routes that are open by prefix, or for other methods | open more than a probe | 4 | test_only_whole_paths_for_get_that_everybody_may_ask_are_open |
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from handfast import errors
from handfast.rules.envoy import judging
from handfast.wire import channel, policy_messages

WATCH: Final = f"/{policy_messages.INBOUND_SERVICE}/WatchPort"
MOST_PATHS: Final = 64
MOST_PATH: Final = 2048


class BadPolicy(errors.Refused):
    """An answer that cannot be followed (5)."""

    reason = "BadPortPolicy"


async def watch(opened: channel.Channel, workload: str, port: int) -> AsyncIterator[judging.PortJudgement]:
    """Who may call, and again after each change, until the service ends it."""
    message = policy_messages.PortSpec(workload=workload, port=port)
    async for answer in opened.stream(WATCH, message, policy_messages.Server):
        yield read(answer, port)


def read(answer: Any, port: int) -> judging.PortJudgement:
    """What an answer says."""
    return judging.PortJudgement(port=port, permits=_permits(answer.authorizations), open_paths=_paths(answer))


def _permits(authorizations: Any) -> judging.Permits:
    # 2. for all networks
    rows = [row.authentication for row in authorizations if _is_everywhere(row)]
    named = [row.meshTLS.identities for row in rows if row.WhichOneof("permit") == "meshTLS"]
    # 3. everybody, names, or what names end in; no parts are any name
    suffixes = ["".join(f".{part}" for part in suffix.parts) for row in named for suffix in row.suffixes]
    names = [identity.name for row in named for identity in row.identities]
    for text in filter(None, [*suffixes, *names]):
        # 5. what a certificate can have
        if not judging.NAME.fullmatch(text):
            raise BadPolicy(f"a client is {text[:80]!r}, which no certificate of the mesh has")
    return judging.Permits(
        anyone=any(row.WhichOneof("permit") == "unauthenticated" for row in rows),
        identified="" in suffixes,
        names=frozenset(filter(None, names)),
        suffixes=tuple(sorted({*filter(None, suffixes)})),
    )


def _is_everywhere(row: Any) -> bool:
    excepted = any(getattr(network, "except") for network in row.networks)
    return not excepted and any(network.net.prefix_len == 0 and network.net.HasField("ip") for network in row.networks)


def _paths(answer: Any) -> tuple[str, ...]:
    paths = {path for route in answer.protocol.detect.http_routes for path in _open(route)}
    # 4. not too many
    return tuple(sorted(paths)) if len(paths) <= MOST_PATHS else ()


def _open(route: Any) -> Iterator[str]:
    # 4. everybody may, for GET, the whole path
    if not _permits(route.authorizations).anyone:
        return
    for match in (match for rule in route.rules for match in rule.matches):
        path = match.path.exact
        is_get = match.method.WhichOneof("type") == "registered" and match.method.registered == policy_messages.GET
        if is_get and path.startswith("/") and len(path) <= MOST_PATH and path.isascii() and path.isprintable():
            yield path
