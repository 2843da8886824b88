# SPDX-License-Identifier: Apache-2.0
"""The identity service's own certificate: got from itself, in the name of its own account, and renewed in time.

It is what the service shows where it speaks TLS. It serves nothing itself, and its key is in memory only.

1. The issuer of the moment signs it, for the service's own name. Another issuer, or other settings, mean another certificate.
2. It is renewed when 70 % of its life are over, and kept until the next one is there.
3. It is in the ledger before it is shown, as every other is.
"""

from __future__ import annotations

import datetime
from typing import Final

import structlog

from handfast import errors
from handfast.api import jsonpath, kinds
from handfast.client import api
from handfast.client import ledger as ledger_module
from handfast.mesh.identity import trust as trust_module
from handfast.pki import bundles, keys, pairs
from handfast.pki import names as pki_names
from handfast.rules import user_names
from handfast.rules.mesh import certify, control_plane, names
from handfast.runtime import clock as clocks

_SELF: Final = kinds.row("selfsubjectreviews", "authentication.k8s.io")
_LOOK_SECONDS: Final = 1.0
_RENEW_AFTER: Final = 0.7
_NOBODY: Final = bundles.TrustBundle.of([])
_log = structlog.get_logger("handfast.mesh.identity")


class OwnPair:
    """The pair of the moment; None until there is one."""

    def __init__(
        self,
        client: api.Client,
        trust: trust_module.Followed,
        ledger: ledger_module.Ledger,
        namespace: str,
        clock: clocks.Clock,
    ) -> None:
        self._client = client
        self._trust = trust
        self._ledger = ledger
        self._namespace = namespace
        self._clock = clock
        self._pair: pairs.Pair | None = None
        self._made_by: tuple[object, ...] = ()
        self._due: datetime.datetime | None = None
        self._said = ""

    def current(self) -> pairs.Pair | None:
        return self._pair

    def anchors(self) -> bundles.TrustBundle:
        """Whose client certificates count: those of the mesh."""
        trust = self._trust.current
        return _NOBODY if trust is None else trust.issuer.anchors

    async def run(self) -> None:
        """Keep it fresh, until cancelled."""
        while True:
            trust = self._trust.current
            if trust is not None and self._is_due(trust):
                await self._try(trust)
            await self._clock.sleep(_LOOK_SECONDS)

    def _is_due(self, trust: trust_module.Trust) -> bool:
        # 1. another issuer, or other settings; 2. most of its life is over
        return self._due is None or self._made_by != trust.facts or self._clock.now() >= self._due

    async def _try(self, trust: trust_module.Trust) -> None:
        try:
            await self._renew(trust)
        except (errors.Refused, errors.Unavailable) as error:
            # 2. the one before stays, and the next look tries again
            if error.message != self._said:
                self._said = error.message
                _log.warning("the service got no certificate of its own", reason=error.reason, error=error.message)

    async def _renew(self, trust: trust_module.Trust) -> None:
        answer = await self._client.create(_SELF, {"apiVersion": _SELF.api_version, "kind": _SELF.kind})
        uid = jsonpath.text(answer, "status", "userInfo", "uid")
        account = names.Account(namespace=self._namespace, name=control_plane.IDENTITY, uid=uid)
        now, key = self._clock.now(), keys.generate()
        sans = certify.sans(trust.settings, trust.mesh, account)
        profile = certify.profile(trust.settings, trust.issuer, now)
        issued = trust.issuer.authority.issue(key.public, pki_names.Subject(), sans, profile, now)
        review = certify.Reviewed(
            account=account, username=user_names.service_account_user(account.namespace, account.name)
        )
        # 3. in the ledger before it is shown
        await self._ledger.append(certify.entry(review, sans, issued, trust.issuer, now, rule=certify.OWN))
        self._pair = pairs.Pair((issued.der, *trust.issuer.chain), key)
        self._made_by, self._said = trust.facts, ""
        self._due = now + (issued.not_after - now) * _RENEW_AFTER
        _log.info("the service has a certificate of its own", names=sans.texts(), serial=issued.serial)
