# SPDX-License-Identifier: Apache-2.0
"""The requester's half of a certificate request, against a server that answers in every way there is."""

from __future__ import annotations

import asyncio
import base64
import datetime
from typing import Any

import msgspec
import pytest

from handfast import errors
from handfast.api import status
from handfast.client import requests as certificates
from handfast.client import transport
from handfast.pki import authority, keys, names, profiles, requests
from handfast.rules import user_names
from handfast.rules.certificates import wishes
from tests.unit.client import scripted
from tests.world.clock import START, MovableClock

KEY = keys.generate()
RSA = keys.generate(keys.Kind.RSA)
_CA_KEY = keys.generate()
CA = authority.self_signed_ca(names.Subject(common_name="ca"), _CA_KEY, START - datetime.timedelta(days=2))
WANTED = wishes.node_client("n1")
SERVING = wishes.node_serving("n1", names.Sans(dns=("n1",)))
NAME = wishes.name_of(KEY.public, WANTED)
PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
APPROVED = {"type": "Approved", "status": "True"}


def issued(
    key: keys.PublicKey = KEY.public,
    node: str = "n1",
    *,
    at: datetime.datetime = START,
    profile: profiles.Profile = profiles.KUBELET_CLIENT,
    sans: names.Sans | None = None,
) -> bytes:
    subject = user_names.node_subject(node)
    return CA.issue(key, subject, sans or names.Sans(), profile, at, datetime.timedelta(hours=1)).pem


def csr(
    version: int,
    *conditions: Any,
    certificate: bytes | str | None = None,
    uid: str = "u1",
    key: keys.PrivateKey = KEY,
    wanted: wishes.Wanted = WANTED,
    **spec: Any,
) -> dict[str, Any]:
    request = requests.build(wanted.subject, wanted.sans, key)
    body = {
        "request": base64.b64encode(request).decode(),
        "signerName": wanted.signer,
        "usages": list(wanted.usages),
        **spec,
    }
    found: dict[str, Any] = {"conditions": list(conditions)}
    if certificate is not None:
        found["certificate"] = base64.b64encode(certificate).decode() if isinstance(certificate, bytes) else certificate
    return {"metadata": {"name": NAME, "uid": uid, "resourceVersion": str(version)}, "spec": body, "status": found}


def modified(document: Any, kind: str = "MODIFIED") -> dict[str, Any]:
    return {"type": kind, "object": document}


# What no API server says of a request.
WRONG: list[Any] = [
    {},
    {"metadata": []},
    {"metadata": {"uid": 1}},
    {"metadata": {"uid": "u1"}, "status": [1]},
    {"metadata": {"uid": "u1"}, "status": {"conditions": ["x"]}},
    {"metadata": {"uid": "u1"}, "status": {"conditions": [{"type": "Approved", "status": []}]}},
    {"metadata": {"uid": "u1"}, "status": {"conditions": [APPROVED], "certificate": {}}},
]

ISSUED = modified(csr(3, APPROVED, certificate=issued()))


async def obtain(
    server: scripted.Server,
    key: keys.PrivateKey = KEY,
    wanted: wishes.Wanted = WANTED,
    *,
    seconds: float = 900,
    clock: MovableClock | None = None,
    on_waiting: certificates.OnWaiting = certificates.keep_waiting,
) -> bytes:
    clock = clock or MovableClock()
    async with scripted.client_of(server, clock) as client:
        asking = asyncio.create_task(
            certificates.file_and_wait(client, key, wanted, clock=clock, seconds=seconds, on_waiting=on_waiting)
        )
        while not asking.done():
            # Time goes on only while nothing is under way on the network.
            await asyncio.wait([asking], timeout=0.02)
            await clock.advance(1.0)
        return await asking


async def test_one_create_and_one_watch():
    async with scripted.serving(
        scripted.answer(201, csr(1)),
        scripted.stream(
            modified(csr(1), "ADDED"), modified(csr(2, APPROVED)), scripted.bookmark(2), ISSUED, then="hold"
        ),
    ) as server:
        assert b"BEGIN CERTIFICATE" in await obtain(server)
    create, watch = server.requests
    assert (create.method, create.path) == ("POST", PATH)
    document = msgspec.json.decode(create.body)
    assert document["metadata"] == {"name": NAME}
    assert document["spec"]["usages"] == ["digital signature", "client auth"]
    assert set(document["spec"]) == {"request", "signerName", "usages"}
    parsed = requests.parse(base64.b64decode(document["spec"]["request"]))
    assert (parsed.public_key, str(parsed.subject)) == (KEY.public, "CN=system:node:n1,O=system:nodes")
    assert (watch.method, watch.path, watch.params["watch"]) == ("GET", PATH, "true")
    assert watch.params["fieldSelector"] == f"metadata.name={NAME}"
    assert watch.params["resourceVersion"] == "1"


async def test_rsa_keys_and_a_lifetime():
    wanted = wishes.node_client("n1", expiration_seconds=3600)
    answer = csr(1, APPROVED, certificate=issued(RSA.public))
    async with scripted.serving(scripted.answer(201, answer)) as server:
        assert b"BEGIN CERTIFICATE" in await obtain(server, RSA, wanted)
    spec = msgspec.json.decode(server.requests[0].body)["spec"]
    assert spec["usages"] == ["digital signature", "client auth", "key encipherment"]
    assert spec["expirationSeconds"] == 3600


async def test_serving_certificates():
    good = issued(profile=profiles.KUBELET_SERVING, sans=SERVING.sans)
    answer = csr(1, APPROVED, certificate=good, wanted=SERVING)
    async with scripted.serving(scripted.answer(201, answer)) as server:
        assert await obtain(server, wanted=SERVING) == good
    assert msgspec.json.decode(server.requests[0].body)["spec"]["signerName"] == "kubernetes.io/kubelet-serving"


class TestThereAlready:
    """409: a start before this one filed it."""

    async def test_waited_for(self):
        async with scripted.serving(
            scripted.status(409, "AlreadyExists"), scripted.answer(200, csr(7)), scripted.stream(ISSUED, then="hold")
        ) as server:
            await obtain(server)
        assert [request.method for request in server.requests] == ["POST", "GET", "GET"]
        assert server.requests[2].params["resourceVersion"] == "7"

    async def test_answered_already(self):
        good = issued()
        async with scripted.serving(
            scripted.status(409, "AlreadyExists"), scripted.answer(200, csr(7, APPROVED, certificate=good))
        ) as server:
            assert await obtain(server) == good

    async def test_not_ours(self):
        document = csr(1, key=keys.generate())
        async with scripted.serving(scripted.status(409, "AlreadyExists"), scripted.answer(200, document)) as server:
            with pytest.raises(
                errors.Refused, match="retrieved csr is not compatible: it is for another key"
            ) as caught:
                await obtain(server)
        assert caught.value.reason in certificates.KEY_IS_SPENT

    async def test_gone_when_looked_at(self):
        once = (scripted.status(409, "AlreadyExists"), scripted.status(404, "NotFound"))
        async with scripted.serving(*once, scripted.answer(201, csr(1, APPROVED, certificate=issued()))) as server:
            await obtain(server)
        async with scripted.serving(*once, *once, *once) as server:
            with pytest.raises(errors.Unavailable, match="comes and goes"):
                await obtain(server)


async def test_a_refusal_to_create_is_the_servers():
    async with scripted.serving(scripted.status(403, "Forbidden")) as server:
        with pytest.raises(status.StatusError) as caught:
            await obtain(server)
    assert caught.value.reason == "Forbidden"
    assert caught.value.reason not in certificates.KEY_IS_SPENT


@pytest.mark.parametrize("raw", [*map(msgspec.json.encode, WRONG), b"", b"\xff", b"[]", b'{"a":' * 100_000])
@pytest.mark.parametrize("found", [False, True])
async def test_an_answer_that_is_none(raw: bytes, *, found: bool):
    steps = [scripted.status(409, "AlreadyExists")] if found else []
    async with scripted.serving(*steps, scripted.answer(200, raw=raw)) as server:
        with pytest.raises(errors.Unavailable) as caught:
            await obtain(server)
    assert caught.value.reason == "BadAnswer"


class TestTheEnd:
    @pytest.mark.parametrize(
        ("event", "reason", "says"),
        [
            (
                modified(csr(2, {"type": "Denied", "status": "True", "reason": "No", "message": "never"})),
                "RequestDenied",
                "certificate signing request is denied, reason: No, message: never",
            ),
            (
                modified(csr(2, {"type": "Denied", "status": "True", "reason": "Revoked", "message": "stolen"})),
                "Revoked",
                "certificate signing request is denied, reason: Revoked, message: stolen",
            ),
            (
                modified(csr(2, APPROVED, {"type": "Failed", "status": "True", "reason": "Revoked", "message": "m"})),
                "Revoked",
                "certificate signing request failed, reason: Revoked, message: m",
            ),
            (
                modified(csr(2, APPROVED, {"type": "Failed", "status": "", "reason": "R", "message": "m"})),
                "RequestFailed",
                "certificate signing request failed, reason: R, message: m",
            ),
            (modified(csr(2), "DELETED"), "RequestDeleted", f'csr "{NAME}" was deleted'),
            (modified(csr(2, uid="u2")), "RequestReplaced", f'csr "{NAME}" changed UIDs'),
        ],
        ids=["denied", "revoked", "revoked-at-the-signer", "failed", "deleted", "replaced"],
    )
    async def test_of_a_request(self, event, reason, says):
        async with scripted.serving(scripted.answer(201, csr(1)), scripted.stream(event, then="hold")) as server:
            with pytest.raises(errors.Refused) as caught:
                await obtain(server)
        assert (caught.value.reason, caught.value.message) == (reason, says)
        assert reason in certificates.REQUEST_IS_OVER

    async def test_of_a_wrong_certificate(self):
        event = modified(csr(2, APPROVED, certificate=issued(keys.generate().public)))
        async with scripted.serving(scripted.answer(201, csr(1)), scripted.stream(event, then="hold")) as server:
            with pytest.raises(errors.Refused, match="it is for a different key than the one requested for") as caught:
                await obtain(server)
        assert caught.value.reason in certificates.KEY_IS_SPENT

    async def test_a_certificate_that_begins_later_keeps_its_key(self):
        later = START + datetime.timedelta(days=1)
        event = modified(csr(2, APPROVED, certificate=issued(at=later)))
        async with scripted.serving(scripted.answer(201, csr(1)), scripted.stream(event, then="hold")) as server:
            with pytest.raises(errors.Unavailable) as caught:
                await obtain(server)
        assert caught.value.reason == "CertificateNotYetValid"
        begins = later - datetime.timedelta(minutes=5)
        assert (
            f"is not valid before {begins:%Y-%m-%dT%H:%M:%SZ}, and it is {START:%Y-%m-%dT%H:%M}" in caught.value.message
        )
        assert "clock" in (caught.value.hint or "")
        assert caught.value.reason not in certificates.KEY_IS_SPENT

    @pytest.mark.parametrize(
        ("document", "lacks"),
        [
            (csr(2), "was not approved"),
            (
                csr(2, {**APPROVED, "reason": "AutoApproved"}),
                f"was approved (AutoApproved), and not signed by {WANTED.signer}",
            ),
            (None, "was not accepted"),
        ],
    )
    async def test_of_patience(self, document, lacks):
        steps = () if document is None else (scripted.answer(201, document), scripted.stream(then="hold"))
        async with scripted.serving(*steps) as server:
            with pytest.raises(errors.Unavailable) as caught:
                await obtain(server, seconds=10)
        # Of a server that has not said a word nobody knows that it is there.
        assert isinstance(caught.value, certificates.StillPending) is (document is not None)
        assert caught.value.message == f'csr "{NAME}" {lacks} within 10 seconds'
        assert (caught.value.reason, caught.value.hint) == (
            "Timeout",
            None if document is None else f"look at it on a control plane with: handfast csr explain {NAME}",
        )


class TestWatch:
    async def test_a_condition_that_does_not_hold_counts_for_nothing(self):
        undecided = modified(csr(2, {"type": "Denied", "status": "False"}))
        async with scripted.serving(
            scripted.answer(201, csr(1)), scripted.stream(undecided, ISSUED, then="hold")
        ) as server:
            await obtain(server)

    async def test_closed_and_taken_up_again(self):
        async with scripted.serving(
            scripted.answer(201, csr(1)),
            scripted.stream(scripted.bookmark(5)),
            scripted.stream(ISSUED, then="hold"),
        ) as server:
            await obtain(server)
        assert [request.params.get("resourceVersion") for request in server.requests] == [None, "1", "5"]

    async def test_a_bookmark_need_not_look_like_a_request(self):
        """As kube-apiserver sends it."""
        mark = {**csr(5), "spec": {"request": None, "signerName": ""}}
        async with scripted.serving(
            scripted.answer(201, csr(1)),
            scripted.stream(modified(mark, "BOOKMARK")),
            scripted.stream(ISSUED, then="hold"),
        ) as server:
            await obtain(server)
        assert [request.params.get("resourceVersion") for request in server.requests] == [None, "1", "5"]

    async def test_closed_after_a_while_costs_no_wait(self):
        naps: list[float] = []

        class Recording(MovableClock):
            async def sleep(self, seconds: float) -> None:
                naps.append(seconds)
                await super().sleep(seconds)

        clock = Recording()

        async def old(writer: asyncio.StreamWriter) -> None:
            await clock.advance(2)
            await scripted.stream()(writer)

        async with scripted.serving(scripted.answer(201, csr(1)), old, scripted.stream(ISSUED, then="hold")) as server:
            await obtain(server, clock=clock)
        assert len(server.requests) == 3
        # The deadline is all that anybody waits for.
        assert naps == [900]

    @pytest.mark.parametrize(
        "trouble",
        [
            scripted.stream(then="reset"),
            scripted.status(410, "Expired"),
            scripted.status(429, "TooManyRequests", retryAfterSeconds=3),
            scripted.status(500, "InternalError"),
            scripted.stream(b"{\n"),
            scripted.stream(b'{"type":"MODIFIED"}\n'),
            *(scripted.stream(modified(wrong)) for wrong in WRONG),
            scripted.stream(b'{"type":"MODIFIED","object":' + b"[" * 100_000 + b"\n"),
            scripted.stream(modified([1], "BOOKMARK")),
            scripted.stream(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"\xff"}}}\n'),
            scripted.stream(b'{"type":"BOOKMARK","object":{"metadata":{"name":' + b"[" * 100_000 + b"\n"),
            scripted.stream(modified([1], "ERROR")),
            scripted.answer(307, Location="http://127.0.0.1:1/"),
            scripted.stream({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}),
        ],
    )
    async def test_trouble_is_followed_by_a_look(self, trouble):
        async with scripted.serving(
            scripted.answer(201, csr(1)), trouble, scripted.answer(200, csr(8)), scripted.stream(ISSUED, then="hold")
        ) as server:
            await obtain(server)
        look, watch = server.requests[-2:]
        assert (look.path, watch.params["resourceVersion"]) == (f"{PATH}/{NAME}", "8")

    async def test_a_look_that_fails_too(self):
        async with scripted.serving(
            scripted.answer(201, csr(1)),
            scripted.stream(then="reset"),
            scripted.status(503, "ServiceUnavailable"),
            scripted.answer(200, csr(9)),
            scripted.stream(ISSUED, then="hold"),
        ) as server:
            await obtain(server)
        assert server.requests[-1].params["resourceVersion"] == "9"

    async def test_deleted_meanwhile(self):
        async with scripted.serving(
            scripted.answer(201, csr(1)), scripted.stream(then="reset"), scripted.status(404, "NotFound")
        ) as server:
            with pytest.raises(errors.Refused, match="was deleted"):
                await obtain(server)

    async def test_a_refusal_is_not_waited_for(self):
        async with scripted.serving(scripted.answer(201, csr(1)), scripted.status(403, "Forbidden")) as server:
            with pytest.raises(status.StatusError, match="because Forbidden"):
                await obtain(server)

    async def test_an_endless_line_is_given_up_and_the_request_read_instead(self, monkeypatch):
        monkeypatch.setattr(certificates, "_MAX_LINE", 10)
        async with scripted.serving(
            scripted.answer(201, csr(1)),
            scripted.stream(b"x" * 20, then="hold"),
            scripted.answer(200, csr(2, APPROVED, certificate=issued())),
        ) as server:
            await obtain(server)
        assert [request.params.get("watch") for request in server.requests] == [None, "true", None]


def _forbidden(*causes):
    found = status.forbidden("certificatesigningrequests", "certificates.k8s.io", "", "no")
    return status.StatusError("Forbidden", found.message, causes=[status.Cause(word, "") for word in causes])


@pytest.mark.parametrize(
    "error",
    [
        *(_forbidden(word) for word in ("TokenUsedUp", "TokenExpired", "TokenGone", "TokenNotFromHere", "Revoked")),
        _forbidden("", "TokenNotForThisNode"),
        _forbidden("WebhookSaysNo", "TokenUsedUp"),
        *(errors.Refused("no", reason=word) for word in ("RequestDenied", "RequestFailed", "Revoked")),
    ],
)
def test_what_waiting_does_not_mend(error):
    found = certificates.refusal_of(error)
    assert found is not None
    assert certificates.is_final(found)
    words = [cause.reason for cause in getattr(error, "causes", ())]
    assert found.reason == (words[-1] if words else error.reason)
    if words:
        assert error.message in found.message
        assert found.hint


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        # Anybody says that: a proxy, or a server that does not know every role yet.
        (_forbidden(), "Forbidden"),
        (_forbidden("WebhookSaysNo"), "WebhookSaysNo"),
        (status.StatusError("Unauthorized", "Unauthorized"), "Unauthorized"),
        # No refusals at all.
        (errors.Refused("gone", reason="RequestDeleted"), None),
        (status.StatusError("TooManyRequests", "later"), None),
        (status.StatusError("InternalError", "oops"), None),
        (errors.Unavailable("down", reason="Unreachable"), None),
        (transport.UnexpectedAnswer("Forbidden", "a proxy's page", code=403), None),
    ],
)
def test_what_the_next_attempt_may_find_otherwise(error, reason):
    found = certificates.refusal_of(error)
    assert (None if found is None else found.reason) == reason
    if found is not None:
        assert not certificates.is_final(found)
        assert error.message in found.message
        assert (found.hint is None) == (reason == "WebhookSaysNo")


WAITING = {"type": "Waiting", "status": "True", "reason": "NodeIsAlive", "message": 'the Node "n1" is alive'}


class TestARequestThatWaits:
    async def test_is_told_of_once_and_waited_for(self):
        told = []
        lines = [modified(csr(2, WAITING)), modified(csr(3, WAITING)), modified(csr(4, APPROVED, certificate=issued()))]
        async with scripted.serving(scripted.answer(201, csr(1)), scripted.stream(*lines, then="hold")) as server:
            await obtain(server, on_waiting=lambda reason, message: told.append((reason, message)))
        assert told == [("NodeIsAlive", 'the Node "n1" is alive')]

    async def test_is_left_by_whom_it_does_not_suit(self):
        def refuse(reason: str, message: str) -> None:
            raise certificates.NotWaitedFor(message, reason=reason)

        lines = [modified(csr(2, WAITING))]
        async with scripted.serving(scripted.answer(201, csr(1)), scripted.stream(*lines, then="hold")) as server:
            with pytest.raises(certificates.NotWaitedFor) as caught:
                await obtain(server, on_waiting=refuse)
        assert caught.value.reason == "NodeIsAlive"
        # Its key is as good as it was.
        assert caught.value.reason not in certificates.KEY_IS_SPENT

    async def test_says_so_when_the_time_is_over(self):
        async with scripted.serving(scripted.answer(201, csr(1, WAITING)), scripted.stream(then="hold")) as server:
            with pytest.raises(certificates.StillPending) as caught:
                await obtain(server, seconds=1)
        assert 'waits (NodeIsAlive: the Node "n1" is alive) and was not approved within' in caught.value.message
