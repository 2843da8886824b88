# SPDX-License-Identifier: Apache-2.0
"""The lines of the audit log: what audit tooling reads in them, and what nobody must."""

from __future__ import annotations

import datetime
import string
import types
from typing import Any, cast

import msgspec
import pytest
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from handfast.api import status
from handfast.apiserver import audit_log, calls, identity, request
from handfast.apiserver.access import authz
from handfast.apiserver.admission import plugin
from handfast.rules import access, decision
from handfast.telemetry import rotating
from tests.unit.apiserver import admission_world
from tests.world.clock import MovableClock

NOW = datetime.datetime(2026, 1, 31, 12, 0, 0, 250, tzinfo=datetime.UTC)
TOKEN = "abcdef.0123456789abcdef"
SECRET_HALF = "0123456789abcdef"
JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJzdWIiOiJzeXN0ZW06eCJ9.c2lnbmF0dXJlLXNlY3JldA"
ALICE = identity.User(
    "alice",
    ("devs", identity.AUTHENTICATED),
    uid="7",
    extra={identity.EXTRA + "credential-id": ("X509SHA256=ab",)},
    method="x509",
    serial="0a1b",
)
ROBOT = identity.User("system:serviceaccount:a:b", ("system:serviceaccounts",), method="service-account")


class Kept:
    """Where lines go in tests."""

    def __init__(self) -> None:
        self.raw: list[bytes] = []

    def add(self, line: bytes) -> None:
        self.raw.append(line)


class Book:
    """An audit log, and its lines read back."""

    def __init__(self) -> None:
        self.clock = MovableClock(NOW)
        self.kept = Kept()
        self.log = audit_log.AuditLog(cast("rotating.LineWriter", self.kept), self.clock)

    def write(self, call: calls.Call, code: int = 200, seconds: float = 0.0015, **more: Any) -> dict[str, Any]:
        self.log.write(call, code, seconds, **more)
        return self.last()

    def last(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(self.kept.raw[-1])
        return found


def asking(target: str, method: str = "GET", user: identity.User = ALICE, **more: Any) -> calls.Call:
    """A request as it is known at its end."""
    headers = {
        "User-Agent": "kubectl/v1.36.0",
        "Authorization": "Bearer " + JWT,
        "Cookie": "c",
        **more.pop("headers", {}),
    }
    parsed = more.pop("parsed", True)
    info = request.parse(method, target) if parsed else request.RequestInfo(method.lower(), "")
    http = make_mocked_request(method, target, headers)
    return calls.Call(http, "boot-1", info, "192.0.2.1", user, **more)


@pytest.fixture
def book() -> Book:
    return Book()


def refusal(user: identity.User, info: request.RequestInfo) -> authz.Refusal:
    return authz.Refusal(authz.attributes(user, info), decision.NotMine("NoRuleAllows", "", "rbac"))


class TestShape:
    def test_an_allowed_request(self, book: Book) -> None:
        asked = asking("/api/v1/namespaces/web/pods/p-0/status?fieldManager=me", "PATCH", decision='allowed by "x"')
        assert book.write(asked) == {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Metadata",
            "auditID": "boot-1",
            "stage": "ResponseComplete",
            "requestURI": "/api/v1/namespaces/web/pods/p-0/status?fieldManager=me",
            "verb": "patch",
            "user": {
                "username": "alice",
                "uid": "7",
                "groups": ["devs", "system:authenticated"],
                "extra": {"authentication.kubernetes.io/credential-id": ["X509SHA256=ab"]},
            },
            "sourceIPs": ["192.0.2.1"],
            "userAgent": "kubectl/v1.36.0",
            "objectRef": {
                "resource": "pods",
                "namespace": "web",
                "name": "p-0",
                "apiVersion": "v1",
                "subresource": "status",
            },
            "responseStatus": {"metadata": {}, "code": 200},
            "requestReceivedTimestamp": "2026-01-31T11:59:59.998750Z",
            "stageTimestamp": "2026-01-31T12:00:00.000250Z",
            "annotations": {
                "authorization.k8s.io/decision": "allow",
                "authorization.k8s.io/reason": 'allowed by "x"',
                "handfast.dev/authenticated-by": "x509",
                "handfast.dev/certificate-serial": "0a1b",
                "handfast.dev/latency-us": "1500",
            },
        }
        assert book.kept.raw[0].count(b"\n") == 1
        assert book.kept.raw[0].endswith(b"}\n")

    def test_times_have_six_digits_always(self, book: Book) -> None:
        line = book.write(asking("/version"), seconds=0.00025)
        assert line["requestReceivedTimestamp"] == "2026-01-31T12:00:00.000000Z"
        assert line["stageTimestamp"] == "2026-01-31T12:00:00.000250Z"

    def test_a_group_and_a_path_that_is_no_resource(self, book: Book) -> None:
        line = book.write(asking("/apis/apps/v1/deployments"))
        assert line["objectRef"] == {"resource": "deployments", "apiGroup": "apps", "apiVersion": "v1"}
        line = book.write(asking("/readyz?verbose"))
        assert "objectRef" not in line
        assert line["requestURI"] == "/readyz?verbose"

    def test_a_forbidden_request_has_the_decision_and_its_reason(self, book: Book) -> None:
        asked = asking("/api/v1/namespaces/web/secrets/s")
        error = refusal(ALICE, asked.info)
        line = book.write(asked, 403, error=error)
        assert line["annotations"]["authorization.k8s.io/decision"] == "forbid"
        cannot = 'User "alice" cannot get resource "secrets" in API group "" in the namespace "web"'
        assert line["annotations"]["authorization.k8s.io/reason"] == cannot
        assert line["annotations"]["handfast.dev/refused-because"] == "NoRuleAllows"
        assert line["responseStatus"] == {
            "metadata": {},
            "status": "Failure",
            "message": error.message,
            "reason": "Forbidden",
            "code": 403,
        }
        assert access.MASTERS not in str(line)

    def test_refused_after_it_was_allowed(self, book: Book) -> None:
        asked = asking("/api/v1/namespaces/web/pods", "POST", decision="yes", noted="a note")
        line = book.write(asked, 409, error=status.already_exists("pods", "", "p"))
        assert line["annotations"]["authorization.k8s.io/decision"] == "allow"
        assert line["annotations"]["handfast.dev/noted"] == "a note"
        assert line["responseStatus"]["reason"] == "AlreadyExists"

    def test_refused_by_admission(self, book: Book) -> None:
        write = admission_world.write_of("CREATE", ("", "pods"), namespace="web", name="p")
        error = plugin.Refusal(write, decision.Deny("NotAMirrorPod", "no", "NodeRestriction"))
        asked = asking("/api/v1/namespaces/web/pods", "POST", decision="yes")
        line = book.write(asked, 403, error=error)
        assert line["annotations"]["authorization.k8s.io/decision"] == "allow"
        assert line["annotations"]["authorization.k8s.io/reason"] == "yes"
        assert line["annotations"]["handfast.dev/refused-because"] == "NotAMirrorPod"

    def test_unauthorized_tells_the_operator_why(self, book: Book) -> None:
        asked = asking("/api/v1/pods", user=identity.ANONYMOUS)
        line = book.write(asked, 401, error=identity.Unauthorized("Expired", "the token expired at noon"))
        assert line["user"] == {}
        assert line["annotations"] == {
            "handfast.dev/refused-because": "Expired: the token expired at noon",
            "handfast.dev/latency-us": "1500",
        }
        assert line["responseStatus"]["message"] == "Unauthorized"

    def test_an_anonymous_request_names_the_anonymous_user(self, book: Book) -> None:
        line = book.write(asking("/version", user=identity.ANONYMOUS))
        assert line["user"] == {"username": "system:anonymous", "groups": ["system:unauthenticated"]}
        assert line["annotations"]["handfast.dev/authenticated-by"] == "anonymous"

    def test_an_impersonated_request_names_both_users(self, book: Book) -> None:
        line = book.write(asking("/version", user=ROBOT, impersonator=ALICE))
        assert line["user"]["username"] == "alice"
        assert line["impersonatedUser"] == {"username": ROBOT.name, "groups": ["system:serviceaccounts"]}
        assert line["annotations"]["handfast.dev/authenticated-by"] == "x509"

    def test_a_create_names_the_new_object(self, book: Book) -> None:
        for name in ("a-x7k2p", "a-9fz4m"):
            asked = asking("/api/v1/namespaces/n/configmaps", "POST")
            asked.created_name = name
            assert book.write(asked, 201)["objectRef"]["name"] == name
        # Without one, the line of an earlier request is not taken for it.
        assert "name" not in book.write(asking("/api/v1/namespaces/n/configmaps", "POST"), 409)["objectRef"]

    def test_what_webhooks_say(self, book: Book) -> None:
        asked = asking("/api/v1/namespaces/n/configmaps/c", "PUT")
        asked.annotations = {"w.example.com/k": f"v {TOKEN}", "authorization.k8s.io/decision": "forged"}
        said = book.write(asked)["annotations"]
        assert said["w.example.com/k"] == "v <redacted>"
        assert "authorization.k8s.io/decision" not in said

    def test_stages_and_no_answer(self, book: Book) -> None:
        asked = asking("/api/v1/pods?watch=1")
        assert book.write(asked, stage=audit_log.RESPONSE_STARTED)["stage"] == "ResponseStarted"
        assert book.write(asked)["verb"] == "watch"
        assert "responseStatus" not in book.write(asked, 0)

    def test_before_and_after_the_path_is_read(self, book: Book) -> None:
        """A request refused at the door does not decide what is said of later ones for the same path."""
        target = "/api/v1/nodes/n"
        assert "objectRef" not in book.write(asking(target, parsed=False))
        assert book.write(asking(target))["objectRef"]["name"] == "n"
        assert "objectRef" not in book.write(asking(target, parsed=False))

    def test_users_of_the_same_name_are_not_mixed_up(self, book: Book) -> None:
        for number in range(50):
            user = identity.User("alice", (f"g{number}",), method="x509")
            assert book.write(asking("/version", user=user))["user"]["groups"] == [f"g{number}"]

    def test_memory_is_bounded(self, book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(audit_log, "_USERS_REMEMBERED", 10)
        monkeypatch.setattr(audit_log, "_TARGETS_REMEMBERED", 10)
        for number in range(35):
            user = identity.User(f"u{number}", ())
            line = book.write(asking(f"/api/v1/nodes/n{number}", user=user))
            assert (line["user"]["username"], line["objectRef"]["name"]) == (f"u{number}", f"n{number}")
        book.write(asking("/" + "x" * 1000))
        assert len(book.log._users) <= 10
        assert len(book.log._targets) <= 10
        assert max(len(target) for target, _, _ in book.log._targets) <= 256


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("/api/v1/pods", "/api/v1/pods"),
        ("/api/v1/pods?limit=500&watch=1&labelSelector=a%3Db", "/api/v1/pods?limit=500&watch=1&labelSelector=a%3Db"),
        ("/x?token=abc&limit=1", "/x?token=<redacted>&limit=1"),
        ("/x?Limit=1", "/x?Limit=<redacted>"),
        ("/x?a=b=c", "/x?a=<redacted>"),
        ("/x?a=&b&=", "/x?a=&b&="),
        ("/x?%6cimit=5", "/x?%6cimit=5"),
        ("/x?", "/x?"),
        ("/x?command=rm&command=-rf", "/x?command=<redacted>&command=<redacted>"),
    ],
)
def test_the_query_is_redacted(target: str, shown: str) -> None:
    assert audit_log.request_uri(target) == shown


HIDING = [
    TOKEN,
    TOKEN.replace(".", "%2E"),
    TOKEN.replace(".", "%252e"),
    f"x_{TOKEN}_y",
    f"Bearer%20{TOKEN}",
    JWT,
    JWT.replace(".", "%2E"),
    JWT.replace("eyJ", "%65yJ"),
    f"{TOKEN}%2F{TOKEN.replace('.', '%2E')}",
]


@pytest.mark.parametrize("secret", HIDING)
@pytest.mark.parametrize(
    "target",
    [
        "/api/v1/namespaces/{}",
        "/{}",
        "/x?{}",
        "/x?{}=1",
        "/x?limit={}",
        "/x?other={}",
        "/api/v1/nodes?fieldSelector=a%3D{}",
    ],
)
def test_tokens_are_taken_out(book: Book, secret: str, target: str) -> None:
    sent = target.format(secret)
    for parsed in (True, False):
        try:
            asked = asking(sent, parsed=parsed)
        except status.StatusError as error:
            asked = asking(sent, parsed=False)
            book.write(asked, 400, error=error)
        else:
            book.write(asked, 404, error=status.bad_request(f"no such thing: {secret}"))
    written = b"".join(book.kept.raw).decode()
    assert SECRET_HALF not in written
    assert "eyJzdWIi" not in written
    assert "c2lnbmF0" not in written
    assert "<redacted>" in written


@pytest.mark.parametrize("secret", [TOKEN, JWT, "Bearer opaque-0123456789-0123456789"])
def test_tokens_elsewhere_are_taken_out(book: Book, secret: str) -> None:
    user = identity.User(f"u {secret}", (secret,), uid=secret, extra={secret: (secret,)})
    asked = asking("/version", user=user, headers={"User-Agent": f"curl {secret}"}, decision=secret, noted=secret)
    line = book.write(asked, 400, error=status.bad_request(secret))
    book.write(asked, 401, error=identity.Unauthorized("Bad", secret))
    written = b"".join(book.kept.raw).decode()
    assert SECRET_HALF not in written
    assert "c2lnbmF0" not in written
    assert "opaque" not in written
    assert line["userAgent"] == "curl <redacted>"


def test_no_header_is_written(book: Book) -> None:
    book.write(asking("/version", headers={"Authorization": "Basic c2VjcmV0", "X-Secret": "hush", "Cookie": "hush"}))
    assert b"c2VjcmV0" not in book.kept.raw[0]
    assert b"hush" not in book.kept.raw[0]


@pytest.mark.parametrize(
    "text",
    [
        "certificatesigningrequests.certificates.k8s.io",
        "mutatingwebhookconfigurations.admissionregistration.k8s.io",
        "bearer tokens and passwords are not accepted",
        "kubectl/v1.36.0 (linux/amd64) kubernetes/0123456789abcdef",
        "100%",
    ],
)
def test_ordinary_texts_stay(text: str) -> None:
    assert audit_log.clean(text, 256) == text


def test_a_line_cannot_be_forged(book: Book) -> None:
    evil = 'x\r\n{"kind":"Event"}\x1b[2J\u202e\udc80\x00'
    user = identity.User(evil, (evil,))
    asked = asking("/version", user=user, decision=evil)
    # Neither the client library nor the parser would let these through.
    asked.http = cast("Any", types.SimpleNamespace(raw_path="/" + evil, headers={"User-Agent": evil}))
    asked.info = request.RequestInfo(evil, evil, True, evil, evil, evil, evil, evil, evil)
    line = book.write(asked, 400, error=status.bad_request(evil))
    assert book.kept.raw[0].count(b"\n") == 1
    plain = 'x  {"kind":"Event"} [2J   '
    assert line["userAgent"] == line["verb"] == line["user"]["username"] == line["objectRef"]["name"] == plain
    assert line["requestURI"] == "/" + plain
    assert line["responseStatus"]["message"] == plain


def test_what_is_filled_in_later_cannot_be_forged(book: Book) -> None:
    evil = 'a\x1a"\x1a'
    asked = asking("/version", user=identity.User(evil, (evil,)), decision=evil)
    asked.http = cast("Any", types.SimpleNamespace(raw_path="/" + evil, headers={"User-Agent": evil}))
    for error in (None, status.StatusError(evil, evil, code=400)):
        line = book.write(asked, 400, error=error)
        assert line["auditID"] == "boot-1"
        assert line["annotations"]["handfast.dev/latency-us"] == "1500"
        assert line["user"]["username"] == line["userAgent"] == 'a " '


async def test_a_remembered_line_is_that_of_its_request(book: Book) -> None:
    other = identity.User("bob", ALICE.groups, method="x509")
    rows: list[tuple[calls.Call, int]] = [
        (asking(target, user=user, decision=decided, headers={"User-Agent": agent}), code)
        for target in ("/version", "/api/v1/namespaces/a/pods/p")
        for user in (ALICE, other)
        for decided in ("one", "two")
        for agent in ("kubectl", "curl")
        for code in (200, 201)
    ]
    first = [book.write(asked, code) for asked, code in rows]
    assert len({msgspec.json.encode(line) for line in first}) == len(rows)
    await book.clock.advance(5.0)
    for (asked, code), before in zip(rows, first, strict=True):
        asked.id, asked.source = "boot-2", "2001:db8::9"
        line = book.write(asked, code, seconds=0.25)
        assert (line["auditID"], line["annotations"]["handfast.dev/latency-us"]) == ("boot-2", "250000")
        assert line["sourceIPs"] == ["2001:db8::9"]
        assert line["stageTimestamp"] == "2026-01-31T12:00:05.000250Z"
        assert line["requestReceivedTimestamp"] == "2026-01-31T12:00:04.750250Z"
        changed = ("auditID", "sourceIPs", "stageTimestamp", "requestReceivedTimestamp", "annotations")
        assert {**line, **dict.fromkeys(changed)} == {**before, **dict.fromkeys(changed)}


def test_remembered_lines_are_bounded(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "_LINES_REMEMBERED", 3)
    remembered = vars(book.log)["_lines"]
    for number in range(10):
        book.write(asking(f"/x/{number}"))
        assert len(remembered) <= 3
    before = len(remembered)
    book.write(asking("/" + "x" * 2000))
    assert len(remembered) == before


def test_lengths_are_bounded(book: Book) -> None:
    long = "x" * 30_000
    user = identity.User(long, ())
    asked = asking("/version", user=user, decision=long)
    asked.http = cast("Any", types.SimpleNamespace(raw_path="/" + long, headers={"User-Agent": long}))
    asked.info = request.RequestInfo("get", long, True, long, long, long, long, long, long)
    line = book.write(asked, 400, error=status.bad_request(long))
    assert len(book.kept.raw[0]) < 8192
    assert line["userAgent"] == "x" * 255 + "…"
    assert len(line["requestURI"]) == 2048
    asked.http = cast("Any", types.SimpleNamespace(raw_path="/x?" + "a=b&" * 30_000, headers={}))
    assert book.write(asked)["requestURI"].count("a=<redacted>") == 100


@pytest.mark.parametrize("before", range(200, 260))
def test_a_cut_leaves_no_part_of_a_token(before: int) -> None:
    shown = audit_log.clean("-" * before + TOKEN, 256)
    assert "." not in shown
    assert len(shown) <= 256


async def test_a_flood_has_few_lines(book: Book) -> None:
    error = status.StatusError("TooManyRequests", "too many", retry_after=1)
    flooding = asking("/version", parsed=False)
    for _ in range(1000):
        book.log.write(flooding, 429, 0.0, error)
    assert len(book.kept.raw) == 10
    line = book.write(asking("/version"))
    assert line["annotations"]["handfast.dev/limited-without-a-line"] == "990"
    assert "handfast.dev/limited-without-a-line" not in book.write(asking("/version"))["annotations"]
    await book.clock.advance(0.1)
    assert book.write(asking("/version"), 429, error=error)["responseStatus"]["code"] == 429


@given(
    before=st.text(alphabet=string.ascii_uppercase + string.punctuation + string.whitespace + "é\u202e", max_size=300),
    after=st.text(alphabet="-/?&=_. \n", max_size=20),
    secret=st.from_regex(r"[a-z0-9]{6}\.[a-z0-9]{16}", fullmatch=True),
)
def test_no_text_around_a_token_saves_it(before: str, after: str, secret: str) -> None:
    sent = f"{before}/{secret}{after}"
    for shown in (audit_log.clean(sent, 256), audit_log.request_uri(sent)):
        assert secret[7:] not in shown
        assert shown.isprintable()


@given(st.from_regex(audit_log._SECRET))
def test_the_quick_look_overlooks_no_secret(text: str) -> None:
    assert audit_log._looks_secret(text)
