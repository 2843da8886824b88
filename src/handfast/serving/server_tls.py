# SPDX-License-Identifier: Apache-2.0
"""The server's side of TLS: which pair is shown, and whose client certificates pass.

1. A pair that has changed counts from the next handshake on. Connections that are open stay so.
2. While there is no pair, handshakes fail, with one line in the log each minute at most.
3. Files that cannot be used, or do not fit together, change nothing: the pair before stays, until they do.
4. A client's certificate is asked for where there is a CA to judge it by, and never required. One that is shown has to be of
   that CA as it is known now: one that is retired counts until the next handshake.
5. Session tickets are off: a session resumed from one would go on with an old pair, and carries no chain. (TLS 1.2 may still
   find a session by its number in this server's memory; that one has kept its chain.)

The API server judges client certificates itself, on every request, and has a context of its own for that
(`server_context`). Nothing here renews a certificate or decides which CA is the right one.
"""

from __future__ import annotations

import pathlib
import ssl
from collections.abc import Callable
from typing import Final

import structlog

from handfast.pki import keys, pairs
from handfast.runtime import clock as clocks
from handfast.runtime import files, following, tls
from handfast.serving import tls_alert

# X509_V_FLAG_NO_CHECK_TIME: `ssl` does not name it.
_NO_CHECK_TIME: Final = 0x200000
_TELL_SECONDS: Final = 60.0
_MAX_BYTES: Final = 1 << 20
_log = structlog.get_logger("handfast.serving")

Current = Callable[[], pairs.Pair | None]


def _bare(minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = minimum
    context.set_alpn_protocols(["http/1.1"])
    # 5. no tickets
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    context.sslobject_class = tls_alert.Handshake
    # A client CA may be an intermediate one, trusted without its root. It counts before the callback chooses a context, too.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _ask(context: ssl.SSLContext, client_cas: str) -> None:
    """Ask for a client's certificate, of these CAs in PEM (4)."""
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=client_cas)


def server_context(certificate_file: str, key_file: str, client_cas: str) -> ssl.SSLContext:
    """TLS of a server that compares the times of client certificates itself: its own pair, and CAs in PEM."""
    context = _bare()
    context.load_cert_chain(certificate_file, key_file)
    _ask(context, client_cas)
    context.verify_flags |= ssl.VerifyFlags(_NO_CHECK_TIME)
    return context


class PairFiles:
    """A certificate with its chain, and its key, in two files that somebody renews."""

    def __init__(self, certificate: pathlib.Path, key: pathlib.Path, clock: clocks.Clock) -> None:
        self._paths = (certificate, key)
        self._clock = clock
        # Before the first reading, so that what changes from here on has changed.
        self._follower = following.Follower(self._paths, self._load, clock)
        self._looked = clock.monotonic()
        self._pair: pairs.Pair
        self._load()

    def current(self) -> pairs.Pair:
        """The pair that is in the files now, or was a few seconds ago (1)."""
        now = self._clock.monotonic()
        if now - self._looked >= following.SECONDS:
            self._looked = now
            # 3. the follower tells the log what cannot be used
            self._follower.look()
        return self._pair

    def _load(self) -> None:
        certificate, key = self._paths
        chain = files.read(certificate, limit=_MAX_BYTES)
        self._pair = pairs.join(chain, keys.private_from_pem(files.read_private(key, limit=_MAX_BYTES)))


class ServerTLS:
    """A context that takes the pair of the moment; `current` gives it, or None while there is none."""

    def __init__(
        self,
        current: Current,
        clock: clocks.Clock,
        client_ca: bytes | None = None,
        minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
    ) -> None:
        self._current = current
        self._clock = clock
        self._client_ca = client_ca
        self._minimum = minimum
        self._served: tuple[pairs.Pair, ssl.SSLContext] | None = None
        self._warned_at: float | None = None
        self.context = self._context()
        self.context.sni_callback = self._choose

    def trust(self, client_ca: bytes | None) -> None:
        """Let in clients of this CA from now on, and of no other; without one no certificate is asked for.

        What is no CA changes nothing (3).
        """
        before, self._client_ca = self._client_ca, client_ca
        try:
            self._context()
        except (ssl.SSLError, ValueError) as error:
            self._client_ca = before
            _log.warning("a client CA cannot be used; the one before stays", error=str(error))
            return
        self._served = None
        # Whether to ask is decided before the callback runs, whom to believe after it.
        self.context.verify_mode = ssl.CERT_NONE if client_ca is None else ssl.CERT_OPTIONAL

    def _context(self) -> ssl.SSLContext:
        context = _bare(self._minimum)
        if self._client_ca is not None:
            _ask(context, self._client_ca.decode("ascii"))
        return context

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> int | None:
        pair = self._current()
        if pair is None:
            # 2. not in each handshake
            now = self._clock.monotonic()
            if self._warned_at is None or now - self._warned_at >= _TELL_SECONDS:
                self._warned_at = now
                _log.warning("no serving certificate available; a TLS handshake failed")
            return int(ssl.ALERT_DESCRIPTION_INTERNAL_ERROR)
        if self._served is None or self._served[0] is not pair:
            fresh = self._context()
            tls.load_pair(fresh, pair.certificate_pem, pair.key_pem)
            self._served = (pair, fresh)
        connection.context = self._served[1]
        return None
