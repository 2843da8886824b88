# SPDX-License-Identifier: Apache-2.0
"""The certificate of the node's own HTTPS endpoint: issued by the cluster and rotated, or self-signed, as the kubelet has
it.

TLS looks for it at every handshake (`serving.server_tls`). What is answered there is in `endpoint`. It asks for
no certificate itself: `certificates` does, with what `wanted` says here.

1. With rotation the certificate names the node's addresses as its Node has them; without an address nothing is asked
   for. Until the first one is there handshakes fail.
2. Without rotation it is `kubelet.crt` and `kubelet.key` in the certificate directory, made where they are not there,
   and made anew when they cannot be used, name other hosts, or have a third of their life left. Where they cannot be
   written, on a full disk for instance, the pair serves from memory: health and metrics are wanted then most of all.
"""

from __future__ import annotations

import ipaddress
import pathlib
from collections.abc import Sequence
from typing import Final

import structlog

from handfast import errors
from handfast.pki import authority, keys, names, pairs, pem, profiles, renewal
from handfast.rules.certificates import wishes
from handfast.runtime import clock as clocks
from handfast.runtime import files

CERTIFICATE: Final = "kubelet.crt"
KEY: Final = "kubelet.key"
_MAX_BYTES: Final = 1 << 20
_TELL_SECONDS: Final = 60.0

_log = structlog.get_logger("handfast.node")


def sans(hostname: str, addresses: Sequence[str]) -> names.Sans:
    """The names of the endpoint, each once and in order."""
    found = sorted({ipaddress.ip_address(address) for address in addresses}, key=lambda one: (one.version, int(one)))
    return names.Sans(dns=(hostname,) if hostname else (), ip=tuple(found))


def wanted(node: str, hostname: str, addresses: Sequence[str]) -> wishes.Wanted | None:
    """What to ask the cluster for (1)."""
    return wishes.node_serving(node, sans(hostname, addresses)) if addresses else None


class SelfSigned:
    """2. The pair that vouches for itself."""

    def __init__(self, directory: pathlib.Path, hosts: names.Sans, clock: clocks.Clock) -> None:
        self._directory = directory
        self._hosts = hosts
        self._clock = clock
        self._pair: pairs.Pair | None = None
        # When to try again to write a pair that is only in memory.
        self._write_at: float | None = None

    def current(self) -> pairs.Pair:
        """The pair, made or made anew where need be."""
        if self._pair is None:
            self._pair = self._load()
        if self._pair is None or self._is_stale(self._pair):
            self._pair = self._make()
            self._write_at = self._clock.monotonic()
            _log.info("a self-signed serving certificate was made", hosts=self._hosts.texts())
        if self._write_at is not None and self._clock.monotonic() >= self._write_at:
            self._write(self._pair)
        return self._pair

    def _write(self, pair: pairs.Pair) -> None:
        try:
            # The key first: a certificate without its key is made anew, and so is one with another's.
            files.create_directory(self._directory, mode=0o755)
            files.write_atomically(self._directory / KEY, pair.key_pem)
            files.write_atomically(self._directory / CERTIFICATE, pair.certificate_pem, mode=0o644)
        except (errors.Refused, errors.Unavailable) as error:
            self._write_at = self._clock.monotonic() + _TELL_SECONDS
            _log.warning(
                "the serving certificate is kept in memory: it cannot be written",
                reason=error.reason,
                error=error.message,
            )
        else:
            self._write_at = None

    def _load(self) -> pairs.Pair | None:
        try:
            certificate = files.read(self._directory / CERTIFICATE, limit=_MAX_BYTES)
            key = keys.private_from_pem(files.read_private(self._directory / KEY, limit=_MAX_BYTES))
            return pairs.join(certificate, key)
        except errors.Refused as refused:
            if refused.reason != "FileNotFound":
                _log.warning("the self-signed pair is made anew", reason=refused.reason, error=refused.message)
            return None

    def _is_stale(self, pair: pairs.Pair) -> bool:
        leaf = pair.leaf
        left = leaf.not_after - self._clock.now()
        return (
            left < (leaf.not_after - leaf.not_before) / 3
            or renewal.lacking(leaf, leaf.subject, self._hosts) is not None
        )

    def _make(self) -> pairs.Pair:
        now = self._clock.now()
        host = self._hosts.dns[0] if self._hosts.dns else "node"
        issuer = authority.self_signed_ca(
            names.Subject(common_name=f"{host}-ca@{int(now.timestamp())}"), keys.generate(), now, ttl=profiles.YEAR
        )
        key = keys.generate()
        subject = names.Subject(common_name=f"{host}@{int(now.timestamp())}")
        left = issuer.certificate.not_after - now
        issued = issuer.issue(key.public, subject, self._hosts, profiles.KUBELET_SERVING, now, left)
        chain = issued.pem + pem.certificates_to_pem([issuer.certificate.der])
        return pairs.join(chain, key)
