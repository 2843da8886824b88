# SPDX-License-Identifier: Apache-2.0
"""The SPIFFE Workload API of one workload, X.509 part, on a unix socket: programs that know SPIFFE have the identity that its proxy has.

Not here: the JWT part, whose methods are not implemented; other trust domains; lists of revoked certificates. Who calls is not looked at: all who
may open the socket are the workload.

1. The SVID has a key of its own, a new one with each certificate, which is in no file (`credentials`). The key of the proxy is not handed out.
2. Its certificate is the identity service's answer to the Pod's token, judged as the proxy's own, and has the one SPIFFE ID of the name (`svids`).
   A mesh that gives none is told by name, with the command that turns it on, and asked again: PERMISSION_DENIED until then.
3. A call says `workload.spiffe.io: true` in its metadata, else it is INVALID_ARGUMENT: nobody is made to call here by a forged request.
4. Each rotation, and each change of the anchors, is sent to every stream; the whole of it, and only the last of several that come quickly.
5. Before the first certificate a call waits a moment, for programs start beside their proxy; then it is UNAVAILABLE, and comes again.
6. At its end an SVID is handed out no more, and the streams end with PERMISSION_DENIED, which means that it is to be used no more.
7. There are so many streams at most, else UNAVAILABLE. The socket is for this user, or for a group as well; its path is nobody else's.

| who | holding | tries | stopped by | shown in tests/unit/proxy/test_spiffe.py |
|---|---|---|---|---|
| a web page, or a forged request | a way to make a program call the socket | get a key | 3 | test_a_call_without_the_mark_is_refused |
| another user of the machine | the path of the socket | get a key | 7 | test_the_socket_is_for_its_user_or_for_a_group |
| a program of the workload | the socket | get the proxy's own key | 1 | test_the_key_is_not_that_of_the_proxy_and_a_new_one_each_time |
| … | … | go on with an identity that was taken back | 6 | test_at_the_end_streams_end_and_nothing_is_handed_out |
| … | streams without end | use up the proxy's memory | 7 | test_one_stream_too_many_is_told_to_come_again |
| a confused service | its issuer | hand out another's SPIFFE ID | 2 | test_an_id_of_another_is_not_handed_out |
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from handfast import errors
from handfast.client import issuance
from handfast.pki import pairs
from handfast.proxy import credentials
from handfast.proxy import trust as trust_module
from handfast.rules.mesh import svids
from handfast.runtime import clock as clocks
from handfast.runtime import followers, tasks, unix_sockets
from handfast.wire import peers, server
from handfast.wire import spiffe_messages as messages

FLAG: Final = "--spiffe-socket"
MARK: Final = ("workload.spiffe.io", "true")
MOST_STREAMS: Final = 64
_FIRST_SECONDS: Final = 5.0


class Spiffe:
    """Serves one workload: a certificate for programs beside that of the proxy, and the anchors that both have."""

    def __init__(self, own: credentials.Credentials, trust: trust_module.Trust, clock: clocks.Clock) -> None:
        self._name = own.name
        # 1. a key of its own; 2. the one ID of the name
        self._svid = own.beside(lambda sans: svids.identified(sans, own.name), _judge)
        self._trust = trust
        self._clock = clock
        self._streams = followers.Followers()
        # Of the last certificate: bundles outlive it.
        self._id: svids.SpiffeID | None = None
        self._server = server.Server(
            {
                messages.SERVICE: [
                    server.Stream("FetchX509SVID", messages.SvidRequest, messages.SvidResponse, self._svids),
                    server.Stream("FetchX509Bundles", messages.BundlesRequest, messages.BundlesResponse, self._bundles),
                ]
            },
            clock=clock,
            # 3. marked
            mark=MARK,
        )

    @contextlib.asynccontextmanager
    async def on(self, path: pathlib.Path, group: int | None = None) -> AsyncIterator[None]:
        """Serve while the block runs, to this user, and to the group where there is one."""
        # 7. nobody else's
        unix_sockets.require_free(path, FLAG)
        async with self._server.at(path, group), tasks.Group("spiffe") as work:
            work.start(self._svid.run(), name="spiffe/svid")
            work.start(self._follow_svid(), name="spiffe/certificates")
            work.start(self._follow_trust(), name="spiffe/anchors")
            yield

    @property
    def svid(self) -> credentials.Credentials:
        """The certificate for programs."""
        return self._svid

    # What there is to say.

    def _svid_now(self) -> Any:
        pair = self._pair()
        svid = {
            "spiffe_id": self._identified(pair).text,
            "x509_svid": b"".join(pair.chain),
            "x509_svid_key": pair.key.to_der(),
            "bundle": self._anchors(),
        }
        return messages.SvidResponse(svids=[svid])

    def _bundles_now(self) -> Any:
        # The trust domain is in a certificate, and stays the same.
        spiffe_id = self._id or self._identified(self._pair())
        return messages.BundlesResponse(bundles={spiffe_id.domain_id: self._anchors()})

    def _pair(self) -> pairs.Pair:
        standing = self._svid.standing()
        if standing.pair is None:
            raise self._nothing(standing)
        return standing.pair

    def _identified(self, pair: pairs.Pair) -> svids.SpiffeID:
        self._id = svids.identified(pair.leaf.sans, self._name)
        return self._id

    def _anchors(self) -> bytes:
        return b"".join(self._trust.current.ders)

    def _nothing(self, standing: credentials.Standing) -> server.Refusal:
        last = self._svid.last_error
        why = "" if last is None else f": {last.message}" + (f"; {last.hint}" if last.hint else "")
        if standing.until is not None:
            # 6. over
            return server.Refusal(
                "PERMISSION_DENIED", f"the certificate is over since {standing.until:%Y-%m-%dT%H:%M:%SZ}{why}"
            )
        if last is not None and last.reason == svids.NoSpiffeID.reason:
            # 2. with the command that turns it on
            return server.Refusal("PERMISSION_DENIED", f"there is no SVID{why}")
        # 5. comes again
        return server.Refusal("UNAVAILABLE", f"there is no certificate so far{why}")

    # To whom it is said.

    def _svids(self, _message: Any, _peer: peers.Peer) -> AsyncIterator[bytes]:
        return self._stream(self._svid_now)

    def _bundles(self, _message: Any, _peer: peers.Peer) -> AsyncIterator[bytes]:
        return self._stream(self._bundles_now)

    async def _stream(self, current: Callable[[], Any]) -> AsyncIterator[bytes]:
        # 7. so many at most
        if len(self._streams) >= MOST_STREAMS:
            raise server.Refusal("UNAVAILABLE", f"there are {MOST_STREAMS} streams already")
        with self._streams.one() as changed:
            await self._first(changed)
            sent = b""
            while True:
                changed.clear()
                octets = current().SerializeToString(deterministic=True)
                if octets != sent:
                    # 4. the whole of it
                    yield octets
                    sent = octets
                await changed.wait()

    async def _first(self, changed: asyncio.Event) -> None:
        # 5. a moment
        if self._svid.standing().state is credentials.State.NOT_CERTIFIED and self._svid.last_error is None:
            await tasks.wait_for_event(changed, self._clock, _FIRST_SECONDS)

    async def _follow_svid(self) -> None:
        async for _ in self._svid.follow():
            self._streams.tell()

    async def _follow_trust(self) -> None:
        async for _ in self._trust.follow():
            self._streams.tell()


def _judge(error: errors.HandfastError) -> issuance.Outlook:
    if isinstance(error, svids.NoSpiffeID | svids.WrongSpiffeID):
        # Each answer is a certificate that is issued for nothing: asked for less and less often.
        return issuance.Outlook(server_healthy=True, request_is_over=True)
    return issuance.judge_plainly(error)
