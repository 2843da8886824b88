# SPDX-License-Identifier: Apache-2.0
"""The files that an API server serves with and judges by, read at its start and taken up again when they change.

It does not write them: `datadir` renews them, `rotation.sequence` replaces them, and so may people.

1. A changed serving pair is used for new handshakes. Connections that are open stay as they are.
2. A changed CA file is what counts where there is no ConfigMap of client CAs, and passes the handshake; a ConfigMap that
   is there goes on deciding which keys are believed (`client_cas`).
3. Changed keys of service account tokens are believed, told and signed with from the next request on. Nothing of a key
   that is gone is remembered, and watches end, so that they are asked again who they are.
4. Files that cannot be used, or do not fit together, change nothing: what was in force stays, until they do.
"""

from __future__ import annotations

import pathlib
import ssl
from collections.abc import Callable, Sequence

import msgspec
import structlog

from handfast import errors
from handfast.datadir import layout, own_certificates, preparation
from handfast.pki import bundles, certificates, keys, pem
from handfast.runtime import clock as clocks
from handfast.runtime import files, following, tasks
from handfast.serving import server_tls

_log = structlog.get_logger("handfast.served_files")


class Consumers(msgspec.Struct, frozen=True, kw_only=True):
    """Who takes up what has changed: each is called with the new content, and may refuse it."""

    renew: Callable[[str, str], None]
    trust: Callable[[bundles.TrustBundle], None]
    sign_with: Callable[[keys.PrivateKey, Sequence[keys.PublicKey]], None]
    end_watches: Callable[[], None]


class ServedFiles:
    """The files of one server. Made before anything is read of them."""

    def __init__(self, place: layout.Layout, clock: clocks.Clock, tls_files: tuple[str, str] | None = None) -> None:
        own_pair = (place.apiserver_certificate, place.apiserver_key)
        self._place = place
        self._pair = own_pair if tls_files is None else (pathlib.Path(tls_files[0]), pathlib.Path(tls_files[1]))
        self._key_files = (place.service_account_key, place.service_account_public_key)
        self._ca_files = (place.ca_certificate,)
        self._clock = clock
        # What changes from here on is taken up, also while the server starts.
        self._pair_before = following.stamp(self._pair)
        self._ca_before = following.stamp(self._ca_files)
        self._keys_before = following.stamp(self._key_files)

    def client_cas(self) -> bytes:
        """The CA file."""
        return files.read(self._place.ca_certificate, limit=own_certificates.MAX_BYTES)

    def last_backup(self) -> float:
        """When a backup of the store was last taken from here, in seconds since 1970; 0 if never."""
        try:
            return self._place.last_backup.stat().st_mtime
        except OSError:
            return 0.0

    def server_context(self, client_cas: bytes) -> ssl.SSLContext:
        """The server's TLS to begin with."""
        self._require_files()
        try:
            return server_tls.server_context(str(self._pair[0]), str(self._pair[1]), client_cas.decode())
        except (OSError, ssl.SSLError) as error:
            raise self._unusable(error) from None

    def token_keys(self) -> tuple[keys.PrivateKey, Sequence[keys.PublicKey]]:
        """The key that signs service account tokens, and those that are believed, the signing one first."""
        key = own_certificates.private_key(self._key_files[0])
        public = preparation.public_keys(self._key_files[1])
        if key.public not in public:
            mismatch = errors.Refused("the private key is not that of any of the public keys")
            raise own_certificates.unfit(
                self._key_files[1], self._key_files[0], mismatch, hint=own_certificates.RESTORE
            )
        return key, [key.public, *(other for other in public if other != key.public)]

    async def follow(self, consumers: Consumers) -> None:
        """Take up what changes, until cancelled."""

        def renew() -> None:
            # 1. for new handshakes
            self._require_files()
            try:
                consumers.renew(str(self._pair[0]), str(self._pair[1]))
            except (OSError, ssl.SSLError) as error:
                raise self._unusable(error) from None
            data = files.read(self._pair[0], limit=own_certificates.MAX_BYTES)
            leaf = certificates.read(pem.certificates_from_pem(data, ignoring=pem.KEY_LABELS)[0])
            _log.info("serving with another certificate", serial=leaf.serial, until=leaf.not_after.isoformat())

        def trust() -> None:
            # 2. where no ConfigMap decides
            consumers.trust(bundles.TrustBundle.from_pem(self.client_cas()))

        def sign() -> None:
            # 3. from the next request on
            consumers.sign_with(*self.token_keys())
            _log.info("the keys of service account tokens have changed")
            consumers.end_watches()

        # 4. what cannot be used changes nothing: that is the followers' own
        followers = (
            following.Follower(self._pair, renew, self._clock, since=self._pair_before),
            following.Follower(self._ca_files, trust, self._clock, since=self._ca_before),
            following.Follower(self._key_files, sign, self._clock, since=self._keys_before),
        )
        async with tasks.Group("served-files") as group:
            for follower in followers:
                group.start(follower.run(), name="file")
            await group.wait()

    def _require_files(self) -> None:
        for path in self._pair:
            files.require_regular(path)

    def _unusable(self, error: Exception) -> errors.Refused:
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or "unreadable"
        return errors.Refused(
            f"{self._pair[0]} and {self._pair[1]} cannot be served with: {why}", reason="InvalidKeyPair"
        )
