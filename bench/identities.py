# SPDX-License-Identifier: Apache-2.0
"""Who asks in the benchmark, besides the administrator: users and nodes with certificates, tokens of a service account.

They are signed with the keys in the control plane's directory by the project's own code, so that the server finds what it
would have issued. It sends and measures nothing.
"""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Sequence

import msgspec

from bench import servers
from handfast.apiserver import uids
from handfast.assembly import guard
from handfast.pki import authority, jwt, keys, names, pem, profiles
from handfast.rules.tokens import claims
from handfast.runtime import tls

_TOKEN_SECONDS = 3600


class Issuer:
    """Makes credentials that one control plane accepts."""

    def __init__(self, server: servers.Server) -> None:
        place = server.place
        self._ca_pem = place.ca_certificate.read_bytes()
        self._ca = authority.Authority(
            pem.certificates_from_pem(self._ca_pem)[0], keys.private_from_pem(place.ca_key.read_bytes())
        )
        self._signer = jwt.Signer(keys.private_from_pem(place.service_account_key.read_bytes()))
        self._issuer = guard.GuardOptions().issuer
        self._now = datetime.datetime.now(datetime.UTC)

    def context(self, user: str, *groups: str) -> ssl.SSLContext:
        """TLS as a user, with a certificate of its own."""
        key = keys.generate()
        subject = names.Subject(common_name=user, organizations=groups)
        issued = self._ca.issue(key.public, subject, names.Sans(), profiles.CLIENT, self._now)
        return tls.client_context(self._ca_pem, issued.pem, key.to_pem())

    def tokens(
        self, namespace: str, name: str, uid: str, count: int, *, audience: str = "", pod: tuple[str, str] | None = None
    ) -> Sequence[str]:
        """Tokens of one service account, no two alike; for the API itself unless there is another audience."""
        at = int(self._now.timestamp())
        return [
            self._signer.sign(
                msgspec.json.encode(
                    claims.bound_claims(
                        self._issuer,
                        claims.Bound(
                            namespace=namespace,
                            account=claims.Reference(name, uid),
                            audiences=(audience or self._issuer,),
                            pod=None if pod is None else claims.Reference(*pod),
                            issued_at=at,
                            not_before=at,
                            expires=at + _TOKEN_SECONDS,
                            id=uids.new(),
                        ),
                    )
                )
            )
            for _ in range(count)
        ]
