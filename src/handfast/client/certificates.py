# SPDX-License-Identifier: Apache-2.0
"""The requester's half of a CertificateSigningRequest: file it, wait for the answer by one watch, judge what comes back.

It keeps neither key nor certificate (`node.certificate_store`), and does not begin again after a refusal: whether the
key is of use after an error is said by `KEY_IS_SPENT`, and what follows is the caller's.

The name of a request is a hash of its key and its wishes, so that whoever starts again with the same key finds the
request filed before. One that is there already is ours, and is waited for, when all of this holds:

1. It carries our public key, and was signed with it.
2. Its subject, alternative names, signer and usages are those wanted.
3. Its certificate, if it has one, has not expired.

A certificate is handed out when all of this holds:

4. It can be read, is not longer than `MAX_BYTES`, and is for our key. What comes after it is its chain: of that,
   what cannot be read is left out.
5. It has the subject, the alternative names and the usages wanted.
6. It is in force now. One that begins later speaks of a clock that is wrong, and the same request is asked again.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import datetime
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from handfast import errors
from handfast.api import status
from handfast.client import api
from handfast.client import transport as transports
from handfast.pki import certificates, keys, names, pem, request_names, requests, rotation, usages
from handfast.rules import user_names
from handfast.runtime import backoff, tasks
from handfast.runtime import clock as clocks

T = TypeVar("T")

REQUESTS = api.Resource("certificates.k8s.io", "v1", "certificatesigningrequests", False)
KUBELET_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING = "kubernetes.io/kubelet-serving"

# After these the request will never be answered better, and its key with it.
KEY_IS_SPENT = frozenset(
    {
        *("RequestDenied", "RequestFailed", "RequestDeleted", "RequestReplaced"),
        *("IncompatibleRequest", "WrongCertificate"),
    }
)

_RETRY = backoff.Schedule(initial=1.0, cap=30.0)
_PASSING = frozenset({*transports.NO_ANSWER, "BadAnswer"})
_WATCH_SECONDS = 300
# A watch that lived this long was healthy, whatever ended it.
_HEALTHY_SECONDS = 1.0
_GRACE_SECONDS = 30
_MAX_LINE = 4 << 20
# A certificate with its chain; a store of pairs takes no longer ones.
MAX_BYTES = 256 << 10
# A request that is there when it is created and gone when it is looked at is being cleaned up under our eyes.
_TRIES = 3


_NO_SANS = names.Sans()


# What is read of an answer: whatever is not so is no answer of an API server (BadAnswer), and is asked for again.
class _Meta(msgspec.Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = "True"
    reason: str = ""
    message: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    request: str = ""
    signer_name: str = ""
    usages: list[str] | None = None


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None
    certificate: str | None = None


class _Request(msgspec.Struct):
    """A CertificateSigningRequest."""

    metadata: _Meta
    spec: _Spec | None = None
    status: _Status | None = None

    def conditions(self) -> dict[str, _Condition]:
        """Those that hold, by type."""
        found = (self.status and self.status.conditions) or []
        # An empty status counts as true, as upstream reads conditions from before the field existed.
        return {row.type: row for row in found if row.status in {"True", ""}}

    def certificate(self) -> str | None:
        return None if self.status is None else self.status.certificate


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_events = msgspec.json.Decoder(_Event)
_requests = msgspec.json.Decoder(_Request)


class StillPending(errors.Unavailable):
    """The server took the request, and nobody has answered it yet."""

    reason = "Timeout"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a certificate is to say; `usages` are those for an EC key, in the order that the request's name hashes."""

    subject: names.Subject
    sans: names.Sans = _NO_SANS
    signer: str
    usages: tuple[str, ...]
    expiration_seconds: int | None = None


def node_client(node: str, expiration_seconds: int | None = None) -> Wanted:
    """The certificate by which a node logs in."""
    return Wanted(
        subject=user_names.node_subject(node),
        signer=KUBELET_CLIENT,
        usages=(usages.DIGITAL_SIGNATURE, usages.CLIENT_AUTH),
        expiration_seconds=expiration_seconds,
    )


def node_serving(node: str, sans: names.Sans, expiration_seconds: int | None = None) -> Wanted:
    """The certificate of a node's own HTTPS endpoint."""
    return Wanted(
        subject=user_names.node_subject(node),
        sans=sans,
        signer=KUBELET_SERVING,
        usages=(usages.DIGITAL_SIGNATURE, usages.SERVER_AUTH),
        expiration_seconds=expiration_seconds,
    )


def name_of(key: keys.PublicKey, wanted: Wanted) -> str:
    """The name of the request for this key."""
    return request_names.csr_name(key, wanted.subject, _usages(key, wanted))


async def obtain(
    client: api.Client, key: keys.PrivateKey, wanted: Wanted, *, clock: clocks.Clock, seconds: float
) -> bytes:
    """The certificate in PEM, or an error: see `KEY_IS_SPENT`; Unavailable with reason Timeout after `seconds`."""
    asking = _Asking(client, key, wanted, clock)
    if not await tasks.within(asking.run(), clock, seconds):
        raise StillPending(
            f'csr "{asking.name}" was not {asking.missing} within {seconds:g} seconds',
            hint=f"look at it with: handfast csr explain {asking.name}",
        )
    return asking.certificate


def _usages(key: keys.PublicKey, wanted: Wanted) -> tuple[str, ...]:
    # With RSA, TLS 1.2 may encipher the session's key with the certificate's.
    more = (usages.KEY_ENCIPHERMENT,) if key.kind is keys.Kind.RSA else ()
    return (*wanted.usages, *more)


class _Asking:
    """One request from its creation to its certificate."""

    def __init__(self, client: api.Client, key: keys.PrivateKey, wanted: Wanted, clock: clocks.Clock) -> None:
        self.name = name_of(key.public, wanted)
        self.missing = "accepted"
        self.certificate = b""
        self._client = client
        self._key = key
        self._wanted = wanted
        self._clock = clock
        self._uid = ""
        self._version = ""
        self._backoff = backoff.Backoff(_RETRY)

    async def run(self) -> None:
        """Until there is a certificate."""
        filed = await self._file()
        self._uid = filed.metadata.uid
        done, look = self._seen(filed), False
        while not done:
            try:
                done = (look and self._seen(await self._look())) or await self._watched()
                look = False
            except (errors.Unavailable, status.StatusError) as error:
                await self._clock.sleep(self._after(error))
                look = True

    async def _file(self) -> _Request:
        """The request, created or found."""
        for _ in range(_TRIES):
            try:
                return _request(await self._client.create(REQUESTS, self._document()))
            except status.StatusError as error:
                if error.reason != "AlreadyExists":
                    raise
            document = await self._client.find(REQUESTS, self.name)
            if document is not None:
                found = _request(document)
                _require_compatible(found, self._key.public, self._wanted, self._clock.now())
                return found
        raise errors.Unavailable(f'csr "{self.name}" comes and goes', reason="Conflict")

    def _document(self) -> dict[str, Any]:
        wanted = self._wanted
        request = requests.build(wanted.subject, wanted.sans, self._key)
        spec: dict[str, Any] = {
            "request": base64.b64encode(request).decode("ascii"),
            "signerName": wanted.signer,
            "usages": list(_usages(self._key.public, wanted)),
        }
        if wanted.expiration_seconds is not None:
            spec["expirationSeconds"] = wanted.expiration_seconds
        return {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": self.name},
            "spec": spec,
        }

    def _seen(self, found: _Request) -> bool:
        """Whether this state of the request has the certificate; the end of a request is an error."""
        if found.metadata.uid != self._uid:
            raise errors.Refused(f'csr "{self.name}" changed UIDs', reason="RequestReplaced")
        self._version = found.metadata.resource_version
        conditions = found.conditions()
        if (denied := conditions.get("Denied")) is not None:
            raise _ended("is denied", "RequestDenied", denied)
        if (failed := conditions.get("Failed")) is not None:
            raise _ended("failed", "RequestFailed", failed)
        if "Approved" not in conditions:
            self.missing = "approved"
            return False
        issued = found.certificate()
        if not issued:
            self.missing = "signed"
            return False
        self.certificate = _judged(_unpacked(issued), self._key.public, self._wanted, self._clock.now())
        return True

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
        found = _decoded(_requests, event.object)
        if event.type != "BOOKMARK":
            return self._seen(found)
        self._version = found.metadata.resource_version or self._version
        return False

    def _deleted(self) -> errors.Refused:
        return errors.Refused(f'csr "{self.name}" was deleted', reason="RequestDeleted")

    def _after(self, error: errors.HandfastError) -> float:
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

    async def _look(self) -> _Request:
        found = await self._client.find(REQUESTS, self.name)
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
            api.path(REQUESTS), params=params, accept=api.JSON, idle_seconds=idle
        ) as body:
            async for line in _lines(body):
                yield _decoded(_events, line)


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
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise errors.Unavailable(f"a watch event cannot be decoded: {error}", reason="BadAnswer") from error


def _request(document: object) -> _Request:
    try:
        return msgspec.convert(document, _Request)
    except msgspec.ValidationError as error:
        raise errors.Unavailable(f"the answer is no CertificateSigningRequest: {error}", reason="BadAnswer") from error


def _ended(how: str, reason: str, condition: _Condition) -> errors.Refused:
    return errors.Refused(
        f"certificate signing request {how}, reason: {condition.reason}, message: {condition.message}", reason=reason
    )


def _unpacked(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _wrong("status.certificate is not base64") from None


def _require_compatible(found: _Request, key: keys.PublicKey, wanted: Wanted, now: datetime.datetime) -> None:
    """Checks 1 to 3."""
    spec = found.spec or _Spec()
    try:
        request = requests.parse(base64.b64decode(spec.request, validate=True))
    except (errors.Refused, binascii.Error, ValueError):
        raise _incompatible("its request cannot be read") from None
    rows = (
        # 1.
        ("it is for another key", request.public_key.spki == key.spki),
        # 2.
        (f"its subject is {request.subject}, not {wanted.subject}", request.subject == wanted.subject),
        ("its alternative names differ", set(request.sans.texts()) == set(wanted.sans.texts())),
        (f"its signer is {spec.signer_name}, not {wanted.signer}", spec.signer_name == wanted.signer),
        ("its usages differ", set(spec.usages or ()) == set(_usages(key, wanted))),
    )
    for text, good in rows:
        if not good:
            raise _incompatible(text)
    # 3.
    issued = found.certificate()
    if issued and (ends := _leaf(_unpacked(issued)).not_after) <= now:
        raise _incompatible(f"its certificate expired at {ends:%Y-%m-%dT%H:%M:%SZ}")


def _leaf(data: bytes) -> certificates.Certificate:
    try:
        return certificates.read(pem.certificates_from_pem(data)[0])
    except errors.Refused as refused:
        raise _wrong(f"it cannot be read: {refused.message}") from refused


def _judged(data: bytes, key: keys.PublicKey, wanted: Wanted, now: datetime.datetime) -> bytes:
    """Checks 4 to 6."""
    # 4.
    if len(data) > MAX_BYTES:
        raise _wrong(f"it is longer than {MAX_BYTES} bytes")
    leaf = _leaf(data)
    if leaf.public_key.spki != key.spki:
        raise _wrong("it is for a different key than the one requested for")
    # 5.
    if (why := rotation.lacking(leaf, wanted.subject, wanted.sans)) is not None:
        raise _wrong(why)
    if missing := sorted(set(wanted.usages) - leaf.usages):
        raise _wrong(f"it lacks the usages {', '.join(missing)}")
    # 6.
    if now >= leaf.not_after:
        raise _wrong(
            f"it expired at {leaf.not_after:%Y-%m-%dT%H:%M:%SZ}, and it is {now:%Y-%m-%dT%H:%M:%SZ} here",
            hint="compare this machine's clock with the API server's",
        )
    if now < leaf.not_before:
        raise errors.Unavailable(
            f"the certificate returned is not valid before {leaf.not_before:%Y-%m-%dT%H:%M:%SZ}, and it is "
            f"{now:%Y-%m-%dT%H:%M:%SZ} here",
            reason="CertificateNotYetValid",
            hint="compare this machine's clock with the API server's; the same request is asked again",
        )
    return _readable(data)


def _readable(data: bytes) -> bytes:
    """Without those certificates of the chain that nobody could use (4)."""
    first, *chain = pem.certificates_from_pem(data)
    kept = [first]
    for der in chain:
        with contextlib.suppress(errors.Refused):
            certificates.read(der)
            kept.append(der)
    return data if len(kept) == len(chain) + 1 else pem.certificates_to_pem(kept)


def _incompatible(why: str) -> errors.Refused:
    return errors.Refused(f"retrieved csr is not compatible: {why}", reason="IncompatibleRequest")


def _wrong(why: str, hint: str | None = None) -> errors.Refused:
    return errors.Refused(f"the certificate returned is refused: {why}", reason="WrongCertificate", hint=hint)
