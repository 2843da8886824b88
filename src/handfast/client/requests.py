# SPDX-License-Identifier: Apache-2.0
"""The requester's half of a CertificateSigningRequest: file it, and wait for the answer by one watch.

`rules.certificates.wishes` says what to ask for, and checks the request that was found and the certificate that comes back.
Each state of the request that is seen is looked at in this order. 1, 2, 3 and 6 end it with an error; 4 and 5 are waited for.

1. It is the same object, by its UID.
2. It is not denied.
3. It has not failed.
4. It is approved.
5. It is signed.
6. The certificate is what was asked for.

It keeps neither key nor certificate (`node.certificate_store`). After a refusal it does not begin again: `KEY_IS_SPENT` lists
the errors after which the key is useless, and the caller decides what to do.
"""

from __future__ import annotations

import base64
import contextlib
import shlex
from collections.abc import AsyncGenerator
from typing import Protocol, TypeVar

import msgspec
import structlog

from handfast import errors
from handfast.api import objects, resources, signing_requests, status
from handfast.client import api, partial
from handfast.client import transport as transports
from handfast.pki import keys, requests
from handfast.rules import revocation
from handfast.rules.certificates import wishes
from handfast.rules.nodes import claim
from handfast.rules.tokens import use
from handfast.runtime import backoff, tasks
from handfast.runtime import clock as clocks

T = TypeVar("T")

_log = structlog.get_logger("handfast.client")

_DENIED = "RequestDenied"
_FAILED = "RequestFailed"
_DELETED = "RequestDeleted"
_REPLACED = "RequestReplaced"
# Somebody, or the signer, has said no: asking again would only be another request to decide about.
_DECIDED = frozenset({_DENIED, revocation.REVOKED, _FAILED})
# After these the request of this key will never be answered better: its name is the key's.
KEY_IS_SPENT = _DECIDED | {wishes.INCOMPATIBLE, wishes.WRONG_CERTIFICATE}
# After these the request is over. One that was only deleted is made again, with the same key and so under the same name.
REQUEST_IS_OVER = KEY_IS_SPENT | {_DELETED, _REPLACED}

_ANOTHER_TOKEN_HINT = (
    "ask for another token: "  # noqa: S105 - no token, but how to get one
    "`handfast token create --print-join-command` on a control plane makes one"
)
_REVOKED_HINT = (
    "let the node in again with `handfast node revoke NAME --undo` on a control plane, or give another --node-name"
)
# The words of our own server's rules, which nobody else says. They are true of the next attempt, too.
_FINAL_HINTS = {
    revocation.REVOKED: _REVOKED_HINT,
    use.USED_UP: _ANOTHER_TOKEN_HINT,
    use.EXPIRED: _ANOTHER_TOKEN_HINT,
    use.GONE: _ANOTHER_TOKEN_HINT,
    use.NOT_FOR_THIS_NODE: f"give a name that the token allows with --node-name; or {_ANOTHER_TOKEN_HINT}, with --node",
    use.NOT_FROM_HERE: f"{_ANOTHER_TOKEN_HINT}, with --cidr and a network of this machine",
}
_FINAL = _DECIDED | _FINAL_HINTS.keys()
_HINTS = {
    **_FINAL_HINTS,
    "Unauthorized": f"the token was accepted a moment ago, and has expired or was deleted since; {_ANOTHER_TOKEN_HINT}",
    "Forbidden": "on a control plane, bind the ClusterRole system:node-bootstrapper to a group of the token",
}
_RETRY = backoff.Schedule(initial=1.0, cap=30.0)
_PASSING = frozenset({*transports.NO_ANSWER, "BadAnswer"})
_WATCH_SECONDS = 300
# A watch that lived this long was healthy, whatever ended it.
_HEALTHY_SECONDS = 1.0
_GRACE_SECONDS = 30
_MAX_LINE = 4 << 20
# A request that is there when it is created and gone when it is looked at is being cleaned up under our eyes.
_TRIES = 3


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_event_decoder = msgspec.json.Decoder(_Event)


class OnWaiting(Protocol):
    """Who is told that a request waits, and why; raising NotWaitedFor ends the waiting."""

    def __call__(self, reason: str, message: str) -> None: ...


def keep_waiting(reason: str, message: str) -> None:
    """Whoever runs by itself goes on waiting: what is waited for may come."""
    _log.warning("the certificate request waits", reason=reason, message=message)


class NotWaitedFor(errors.Refused):
    """A request waits, and whoever asked does not want to; it stays as it is, and so does its key."""


class StillPending(errors.Unavailable):
    """The server took the request, and nobody has answered it yet."""

    reason = "Timeout"


async def file_and_wait(
    client: api.Client,
    key: keys.PrivateKey,
    wanted: wishes.Wanted,
    *,
    clock: clocks.Clock,
    seconds: float,
    on_waiting: OnWaiting = keep_waiting,
) -> bytes:
    """The certificate in PEM, or an error: see `KEY_IS_SPENT`; Unavailable with reason Timeout after `seconds`."""
    pending = _PendingRequest(client, key, wanted, clock, on_waiting)
    if not await tasks.within(pending.run(), clock, seconds):
        raise pending.out_of_time(seconds)
    return pending.certificate


async def rehearse(client: api.Client, key: keys.PrivateKey, wanted: wishes.Wanted) -> None:
    """Return if the server would take the request, judged by a dry run; else the error with which a join would end."""
    try:
        await client.create(resources.SIGNING_REQUESTS, _document(key, wanted), dry_run=True)
    except status.StatusError as error:
        # What is there already was taken before.
        if error.reason != "AlreadyExists":
            raise refusal_of(error) or error from None


class _PendingRequest:
    """One request from its creation to its certificate."""

    def __init__(
        self,
        client: api.Client,
        key: keys.PrivateKey,
        wanted: wishes.Wanted,
        clock: clocks.Clock,
        on_waiting: OnWaiting,
    ) -> None:
        self._on_waiting = on_waiting
        self._reported = False
        self.name = wishes.name_of(key.public, wanted)
        # What is said of it should the time run out.
        self._progress = "was not accepted"
        self.certificate = b""
        self._client = client
        self._key = key
        self._wanted = wanted
        self._clock = clock
        self._uid = ""
        self._version = ""
        self._backoff = backoff.Backoff(_RETRY)

    def out_of_time(self, seconds: float) -> errors.Unavailable:
        """What to say of it then. That a server is there is known only of one that has the request."""
        said = f'csr "{self.name}" {self._progress} within {round(seconds, 1):g} seconds'
        if not self._uid:
            return errors.Unavailable(said, reason=StillPending.reason)
        return StillPending(said, hint=self._look_at_it())

    async def run(self) -> None:
        """Until there is a certificate."""
        filed = await self._file()
        self._uid = filed.metadata.uid
        done, look = self._has_certificate(filed), False
        while not done:
            try:
                if look:
                    done, look = self._has_certificate(await self._look()), False
                if not done:
                    done = await self._watched()
            except (errors.Unavailable, status.StatusError) as error:
                await self._clock.sleep(self._delay_after(error))
                look = True

    async def _file(self) -> signing_requests.Request:
        """The request, created or found."""
        for _ in range(_TRIES):
            try:
                return _request(
                    await self._client.create(resources.SIGNING_REQUESTS, _document(self._key, self._wanted))
                )
            except status.StatusError as error:
                if error.reason != "AlreadyExists":
                    raise
            document = await self._client.find(resources.SIGNING_REQUESTS, self.name)
            if document is not None:
                found = _request(document)
                wishes.require_ours(found, self._key.public, self._wanted, self._clock.now())
                return found
        raise errors.Unavailable(f'csr "{self.name}" comes and goes', reason="Conflict")

    def _has_certificate(self, request: signing_requests.Request) -> bool:
        """Whether this state of the request has the certificate; the end of a request is an error."""
        # 1. the same object
        if request.metadata.uid != self._uid:
            raise errors.Refused(f'csr "{self.name}" changed UIDs', reason=_REPLACED)
        self._version = request.metadata.resource_version
        # 2. not denied
        if (denied := request.condition(signing_requests.DENIED)) is not None:
            raise self._ended("is denied", denied)
        # 3. not failed
        if (failed := request.condition(signing_requests.FAILED)) is not None:
            raise self._ended("failed", failed)
        # 4. approved
        if (approved := request.condition(signing_requests.APPROVED)) is None:
            self._progress = "was not approved"
            self._report_waiting(request.condition(claim.WAITING))
            return False
        # 5. signed
        issued = request.status.certificate
        if not issued:
            self._progress = f"was approved ({approved.reason}), and not signed by {self._wanted.signer}"
            return False
        # 6. what was asked for
        self.certificate = wishes.granted(issued, self._key.public, self._wanted, self._clock.now())
        return True

    def _ended(self, how: str, condition: signing_requests.Condition) -> errors.Refused:
        """Denied or failed; that of a revoked name has its own reason."""
        text = f"certificate signing request {how}, reason: {condition.reason}, message: {condition.message}"
        if condition.reason == revocation.REVOKED:
            return errors.Refused(text, reason=revocation.REVOKED, hint=_REVOKED_HINT)
        reason = _FAILED if condition.type == signing_requests.FAILED else _DENIED
        return errors.Refused(text, reason=reason, hint=self._look_at_it())

    def _look_at_it(self) -> str:
        return f"look at it on a control plane with: handfast csr explain {shlex.quote(self.name)}"

    def _report_waiting(self, waiting: signing_requests.Condition | None) -> None:
        """Report, once, what the approver says of a request that it lets wait."""
        if waiting is None:
            return
        self._progress = f"waits ({waiting.reason}: {waiting.message}) and was not approved"
        if not self._reported:
            self._reported = True
            self._on_waiting(waiting.reason, waiting.message)

    async def _watched(self) -> bool:
        """Whether one watch brought the certificate before it closed."""
        opened = self._clock.monotonic()
        async with contextlib.aclosing(self._events()) as events:
            async for event in events:
                if self._take(event):
                    return True
        if self._clock.monotonic() - opened < _HEALTHY_SECONDS:
            await self._clock.sleep(next(self._backoff))
        else:
            self._backoff.reset()
        return False

    def _take(self, event: _Event) -> bool:
        if event.type == "DELETED":
            raise self._deleted()
        if event.type not in {"ADDED", "MODIFIED", "BOOKMARK"}:
            raise transports.status_error(bytes(event.object), 500)
        if event.type != "BOOKMARK":
            return self._has_certificate(_decoded(signing_requests.DECODER, event.object))
        # The rest of it need not look like a request: kube-apiserver has null there.
        if not (version := partial.identify(event.object).metadata.resource_version):
            raise errors.Unavailable("a bookmark has no version", reason="BadAnswer")
        self._version = version
        return False

    def _deleted(self) -> errors.Refused:
        return errors.Refused(f'csr "{self.name}" was deleted', reason=_DELETED)

    def _delay_after(self, error: errors.HandfastError) -> float:
        """How long to wait after a watch that failed; what waiting does not mend is raised."""
        wait = next(self._backoff)
        if isinstance(error, status.StatusError):
            if error.code == 410:
                return 0.0
            if error.code != 429 and error.code < 500:
                raise error
            return max(wait, float(error.retry_after))
        if error.reason not in _PASSING:
            raise error
        return wait

    async def _look(self) -> signing_requests.Request:
        found = await self._client.find(resources.SIGNING_REQUESTS, self.name)
        if found is None:
            raise self._deleted()
        return _request(found)

    async def _events(self) -> AsyncGenerator[_Event, None]:
        """One watch of this object from the version last seen."""
        params = {
            **api.Scope(field_selector=f"metadata.name={self.name}").params(),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        idle = float(_WATCH_SECONDS + _GRACE_SECONDS)
        async with self._client.transport.stream(
            api.path(resources.SIGNING_REQUESTS), params=params, accept=api.JSON, idle_seconds=idle
        ) as body:
            async for line in _lines(body):
                yield _decoded(_event_decoder, line)


def _document(key: keys.PrivateKey, wanted: wishes.Wanted) -> objects.Document:
    request = requests.build(wanted.subject, wanted.sans, key)
    spec = signing_requests.Spec(
        request=base64.b64encode(request).decode("ascii"),
        signer_name=wanted.signer,
        expiration_seconds=wanted.expiration_seconds,
        usages=list(wanted.usages_of(key.public)),
    )
    return signing_requests.new(wishes.name_of(key.public, wanted), spec)


async def _lines(body: transports.Body) -> AsyncGenerator[bytes, None]:
    rest = b""
    while chunk := await body.readany():
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _MAX_LINE:
            raise errors.Unavailable(f"a watch event is longer than {_MAX_LINE} bytes", reason="BadAnswer")
        for line in lines:
            yield line


def _decoded(decoder: msgspec.json.Decoder[T], data: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(data)
    except partial.UNREADABLE as error:
        raise errors.Unavailable(f"a watch event cannot be decoded: {error}", reason="BadAnswer") from error


def _request(document: object) -> signing_requests.Request:
    try:
        return msgspec.convert(document, signing_requests.Request)
    except msgspec.ValidationError as error:
        raise errors.Unavailable(f"the answer is no CertificateSigningRequest: {error}", reason="BadAnswer") from error


def is_final(refusal: errors.Refused) -> bool:
    """Whether every further attempt would be refused, too.

    Any other refusal may pass, and is believed only after a while (`refusals`).
    """
    return refusal.reason in _FINAL


def refusal_of(error: errors.HandfastError) -> errors.Refused | None:
    """The refusal that an error is, as whoever joins should be told; None: it is none.

    A server's 403 has the reason of its own rule among the causes, where it has one. What is no Status counts for nothing.
    """
    if isinstance(error, errors.Refused) and error.reason in _DECIDED:
        return error
    if not isinstance(error, status.StatusError) or isinstance(error, transports.UnexpectedAnswer):
        return None
    if error.code not in {401, 403}:
        return None
    reasons = [cause.reason for cause in error.causes if cause.reason]
    reason = next((reason for reason in reasons if reason in _FINAL), reasons[0] if reasons else error.reason)
    return errors.Refused(f"the cluster refuses the request: {error.message}", reason=reason, hint=_HINTS.get(reason))
