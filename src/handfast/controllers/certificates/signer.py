# SPDX-License-Identifier: Apache-2.0
"""Signs approved requests for Kubernetes' four signers, or says on the request why it does not.

`rules.certificates.signers` says what each signer signs, and `certificates.authorities` which CA signs. Whether a request should be
approved was decided before.

1. It looks at requests that are approved, neither denied nor failed, without a certificate, for a signer that has a CA.
2. A request whose name or key a Revocation refuses is not signed, whoever approved it. It gets the condition Failed, with the
   reason Revoked.
3. A request that its signer does not sign gets the condition Failed, with the reason SignerValidationFailure. So does one that
   cannot be read, or has no name: no later try would end otherwise.
4. The CA that the signer has at this moment signs: the subject, names, usages and lifetime that the rule gives.
5. The certificate is in the ledger before it is handed out. A signer that is killed in between, or loses the race with
   another copy, leaves an entry whose certificate nobody has. It never leaves a certificate without an entry.
6. One update of /status, which carries the version that was approved, hands it out. A lost race is a retry.
7. What the request had in its subject beside common name and organizations is not signed; an Event says what was left out.
8. If the CA, the ledger or the Revocations cannot be used, that is no fault of the request. It is tried again, and one Event
   says why.
"""

from __future__ import annotations

import base64
import datetime

import prometheus_client

from handfast import errors
from handfast.api import objects, signing_requests, status
from handfast.client import api, events, revoked
from handfast.client import ledger as ledger_module
from handfast.controllers import loop
from handfast.controllers.certificates import (
    authorities as signing_authorities,
)
from handfast.controllers.certificates import (
    requests as certificate_requests,
)
from handfast.pki import authority
from handfast.rules import decision
from handfast.rules.certificates import kubelet, signers
from handfast.rules.ledger import entries
from handfast.rules.machines import approval
from handfast.rules.tokens import maker

NAME = "certificatesigningrequest-signing-controller"
DURATION = datetime.timedelta(hours=8760)
# What several append to the ledger while one write is under way leaves in one write.
WORKERS = 16
ISSUED = "Issued"
SUBJECT_REDUCED = "SubjectReduced"

RESULTS = prometheus_client.Counter(
    "handfast_csr_signer_results", "Approved requests, by signer and what became of them.", ["signer", "result"]
)


class CsrSigner:
    """Handles one request, by name."""

    def __init__(
        self,
        context: loop.Context,
        requests: certificate_requests.Requests,
        authorities: signing_authorities.SigningAuthorities,
        ledger: ledger_module.Ledger,
        longest: datetime.timedelta = DURATION,
        revocations: revoked.Revoked | None = None,
    ) -> None:
        self._revocations = revocations
        self._client = context.client
        self._clock = context.clock
        self._requests = requests
        self._authorities = authorities
        self._ledger = ledger
        self._longest = longest
        self._recorder = events.Recorder(context.client, context.clock, NAME)
        # The requests for which an Event says what keeps them from being signed: UID and reason.
        self._reported: dict[str, tuple[str, str]] = {}

    def concerns(self, item: signing_requests.Request) -> bool:
        """Whether a request is one to sign (1)."""
        return (
            item.is_open
            and item.spec.signer_name in self._authorities
            and item.condition(signing_requests.APPROVED) is not None
        )

    async def reconcile(self, name: str) -> float | None:
        item = self._requests.get(name)
        # 1. approved, and not signed yet
        if item is None or not self.concerns(item):
            return None
        try:
            await self._handle(item)
        # 8. no fault of the request: tried again
        except errors.HandfastError as error:
            RESULTS.labels(item.spec.signer_name, error.reason).inc()
            await self._record_event_once(item, error)
            raise
        return None

    async def _handle(self, item: signing_requests.Request) -> None:
        now = self._clock.now()
        try:
            facts = self._requests.facts(item)
            # 2. nothing for whom a Revocation refuses
            verdict = self._revoked(facts, now)
            if isinstance(verdict, decision.Deny):
                await self._fail(item, verdict.sentence, now, verdict.reason)
                return
            # 3. what its signer signs
            verdict = signers.judge(facts)
            if isinstance(verdict, decision.Deny):
                await self._fail(item, verdict.sentence, now)
                return
            # 4. signed
            issued = self._issue(facts, now)
        except status.StatusError:
            raise
        except errors.Refused as refused:
            # 3. it cannot be read: no later try would end otherwise
            await self._fail(item, refused.message, now)
            return
        # 5. in the ledger before it is handed out
        await self._ledger.append(entry(item, facts, issued, now))
        # 6. handed out by one update of the version that was approved
        certificate = base64.b64encode(issued.pem).decode()
        await self._write_status(item.updated(certificate=certificate))
        RESULTS.labels(item.spec.signer_name, ISSUED).inc()
        # 7. what was left out is told
        if others := facts.request.subject.other_types:
            message = f"the certificate has the common name and organizations only; left out: {', '.join(others)}"
            await self._recorder.record(certificate_requests.regarding(item), SUBJECT_REDUCED, message)

    def _revoked(self, facts: kubelet.Facts, now: datetime.datetime) -> decision.Decision | None:
        return None if self._revocations is None else self._revocations.judge_request(facts, now)

    async def _fail(
        self, item: signing_requests.Request, message: str, now: datetime.datetime, reason: str = signers.FAILURE
    ) -> None:
        added = signing_requests.condition(signing_requests.FAILED, reason, message, objects.timestamp(now))
        await self._write_status(item.updated(added=added))
        RESULTS.labels(item.spec.signer_name, reason).inc()

    def _issue(self, facts: kubelet.Facts, now: datetime.datetime) -> authority.Issued:
        profile, ttl = signers.profile(facts, self._longest)
        request = facts.request
        signer = self._authorities.current(facts.signer_name)
        return signer.issue(request.public_key, signers.subject(facts), request.sans, profile, now, ttl)

    async def _write_status(self, update: signing_requests.Update) -> None:
        with api.MISSING_OK:
            self._requests.wrote(await certificate_requests.write(self._client, update, "status"))

    async def _record_event_once(self, item: signing_requests.Request, error: errors.HandfastError) -> None:
        # 8. one Event says why; a lost race is not told
        said = (item.metadata.uid, error.reason)
        if error.reason in loop.RACES or self._reported.get(item.metadata.name) == said:
            return
        self._reported[item.metadata.name] = said
        message = f"cannot be signed now: {error.message}" + (f"; {error.hint}" if error.hint else "")
        await self._recorder.record(
            certificate_requests.regarding(item), error.reason, message, severity=events.WARNING
        )

    def forget(self, name: str) -> None:
        """The request was deleted, or there is nothing more to do about it."""
        self._reported.pop(name, None)


def entry(
    item: signing_requests.Request, facts: kubelet.Facts, issued: authority.Issued, now: datetime.datetime
) -> entries.Entry:
    """What the ledger says of a certificate."""
    method, token = entries.authenticated_by(facts.username, facts.groups, facts.extra)
    matched = item.condition(approval.MATCHED)
    approved = (row.reason for row in item.status.conditions or () if row.type == signing_requests.APPROVED)
    return entries.Entry(
        issued_at=now.replace(microsecond=0),
        signer=facts.signer_name,
        requester=facts.username,
        authenticated_by=method,
        token_id=token,
        key_fingerprint=issued.key_fingerprint,
        serial=issued.serial,
        names=entries.names_of(signers.subject(facts), facts.request.sans),
        not_after=issued.not_after,
        rule=entries.rule_of(
            next(approved, ""),
            method,
            facts.signer_name,
            is_own_name=facts.username == facts.request.subject.common_name,
            machine=matched.message if matched is not None else "",
        ),
        request=facts.name,
        certificate=issued.fingerprint,
        token_maker=maker.recorded(facts.extra) if method == entries.BOOTSTRAP_TOKEN else "",
    )


def build(
    context: loop.Context,
    *,
    feed: certificate_requests.Feed,
    authorities: signing_authorities.SigningAuthorities,
    longest: datetime.timedelta = DURATION,
) -> loop.Controller[str]:
    requests = feed.of(context)
    ledger = ledger_module.Ledger(context.client, context.clock)
    revocations = revoked.follow(context.informers)
    handler = CsrSigner(context, requests, authorities, ledger, longest, revocations)
    controller: loop.Controller[str] = loop.Controller(NAME, handler.reconcile, clock=context.clock, workers=WORKERS)

    def changed(item: signing_requests.Request) -> None:
        if handler.concerns(item):
            controller.queue.add(item.metadata.name)
        else:
            handler.forget(item.metadata.name)

    requests.subscribe(changed, handler.forget)
    controller.needs(requests)
    controller.uses(revocations)
    return controller
