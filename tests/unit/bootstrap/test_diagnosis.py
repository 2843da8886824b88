# SPDX-License-Identifier: Apache-2.0
"""Every cause of a failed join has its own message, hint, reason and exit code."""

from __future__ import annotations

import datetime

import msgspec
import pytest

from handfast import errors
from handfast.bootstrap import cluster_info, diagnosis, discovery, jws, tokens
from handfast.cli import output
from handfast.pki import pins
from tests.unit.pki import making

TOKEN = tokens.Token("abcdef", "0123456789abcdef")
OTHER = tokens.Token("fedcba", "fedcba9876543210")
CA, MALLORY = making.ca("one"), making.ca("one")
KUBECONFIG = cluster_info.build(cluster_info.ClusterInfo(("https://a",), CA.pem, "uid"))
HOUR = datetime.timedelta(hours=1)
WHERE = "https://a:6443"


def status(code, *causes):
    details = {"causes": [{"reason": cause} for cause in causes]}
    return msgspec.json.encode({"kind": "Status", "code": code, "details": details})


EXPIRED = 'Bearer error="invalid_token", error_description="TokenExpired"'


def signed(by, *, secret="", ca=CA, ids=None):
    text = cluster_info.build(cluster_info.ClusterInfo(("https://a",), ca.pem, "uid"))
    made = jws.sign(text.encode(), by.id, secret or by.secret)
    return discovery.Published(text, {by.id: made} if ids is None else dict.fromkeys(ids, made))


def check(published, wanted=()):
    def run():
        discovery.check(published, TOKEN, wanted)

    return run


def explained(trouble, skew=None):
    def run():
        raise diagnosis.explain(trouble, WHERE, "details", skew)

    return run


def raised(error):
    def run():
        assert error is not None
        raise error

    return run


def read(body):
    def run():
        discovery.read_config_map(body, WHERE)

    return run


TROUBLE = diagnosis.Trouble
# cause, how it comes about, reason, exit code, words of the message, words of the hint
ROWS = [
    ("unknown id", check(signed(OTHER)), "UnknownTokenID", 1, "token ID 'abcdef'", "token explain abcdef"),
    (
        "unknown id, as a pinned server says",
        raised(diagnosis.asked_unsigned(TOKEN, 401, "")),
        *("UnknownTokenID", 1, "does not know this token", "token create"),
    ),
    (
        "signature missing",
        check(signed(OTHER, ids=())),
        "SignatureMissing",
        3,
        "no signature at all",
        "bootstrapsigner",
    ),
    (
        "signature wrong",
        check(signed(TOKEN, secret=OTHER.secret)),
        *("SignatureMismatch", 1, "failed to verify JWS signature", "secret half"),
    ),
    (
        "wrong pin",
        check(signed(TOKEN, ca=MALLORY), (pins.of_certificate(CA.der),)),
        *("WrongPin", 1, "are pinned", "compare the pin"),
    ),
    (
        "expired, not signing any more",
        raised(diagnosis.asked_unsigned(TOKEN, 401, EXPIRED)),
        *("TokenExpired", 1, "'abcdef' has expired", "token create"),
    ),
    (
        "expired, at login",
        raised(diagnosis.login(TOKEN, 401, EXPIRED, signs=True)),
        *("TokenExpired", 1, "'abcdef' has expired", "token create"),
    ),
    (
        "clock skew",
        explained(TROUBLE.NOT_VALID_NOW, -2 * HOUR),
        *("ClockSkew", 1, "which is 2h behind the server's", "set the clock"),
    ),
    (
        "certificate not valid, clocks agree",
        explained(TROUBLE.NOT_VALID_NOW, datetime.timedelta(seconds=59)),
        *("CertificateNotValid", 1, "not valid now: details", "renewed"),
    ),
    (
        "certificate not valid, nothing known of the clocks",
        explained(TROUBLE.NOT_VALID_NOW),
        *("CertificateNotValid", 1, "not valid now: details", "clocks"),
    ),
    (
        "not for signing",
        raised(diagnosis.asked_unsigned(TOKEN, 403, "")),
        *("UsageMissing", 1, "not for signing, or the bootstrapsigner controller does not run", "token explain abcdef"),
    ),
    (
        "not for authentication",
        raised(diagnosis.login(TOKEN, 401, "", signs=True)),
        *("UsageMissing", 1, "not for authentication", "--usages signing,authentication"),
    ),
    (
        "login refused, cause unknown",
        raised(diagnosis.login(TOKEN, 401, "", signs=False)),
        *("TokenRefused", 1, "for logging in", "token explain abcdef"),
    ),
    ("TLS interception", explained(TROUBLE.UNTRUSTED), "TLSInterception", 1, "not from the cluster's CA", "in between"),
    ("another name", explained(TROUBLE.WRONG_NAME), "WrongServerName", 1, "for other names", "--advertise"),
    ("not an API server: no TLS", explained(TROUBLE.NOT_TLS), "NotAnAPIServer", 1, "does not speak TLS", "6443"),
    (
        "not an API server: no HTTP",
        explained(TROUBLE.NOT_HTTP),
        "NotAnAPIServer",
        1,
        "not an API server: details",
        "6443",
    ),
    ("not an API server: a page", read(b"<html>"), "NotAnAPIServer", 1, "is not the ConfigMap", "6443"),
    (
        "not an API server: no Status",
        raised(diagnosis.answered(404, b"<html>", WHERE)),
        *("NotAnAPIServer", 1, "answered 404 without a Status", "6443"),
    ),
    (
        "connection refused",
        explained(TROUBLE.CONNECTION_REFUSED),
        *("ConnectionRefused", 3, "refuses connections", "start the API server"),
    ),
    ("DNS failure", explained(TROUBLE.NAME_NOT_FOUND), "NameNotFound", 3, "cannot be resolved: details", "DNS"),
    ("timeout", explained(TROUBLE.NO_ANSWER), "Timeout", 3, "did not answer in time", "--timeout"),
    ("no route", explained(TROUBLE.UNREACHABLE), "Unreachable", 3, "cannot be reached: details", "route"),
    ("server not ready", raised(diagnosis.answered(503, b"", WHERE)), "ServerNotReady", 3, "answered 503", "wait"),
    ("too many requests", raised(diagnosis.answered(429, b"", WHERE)), "ServerNotReady", 3, "answered 429", "wait"),
    (
        "nobody may read it: 403",
        raised(diagnosis.answered(403, status(403), WHERE)),
        *("AnonymousRefused", 1, "without a credential", "--discovery-file"),
    ),
    (
        "nobody may read it: 401",
        raised(diagnosis.answered(401, status(401), WHERE)),
        *("AnonymousRefused", 1, "without a credential", "--anonymous-from"),
    ),
    (
        "nothing published",
        raised(diagnosis.answered(404, status(404), WHERE)),
        *("NoClusterInfo", 3, "no ConfigMap kube-public/cluster-info", "handfast init"),
    ),
]


@pytest.mark.parametrize(("cause", "happens", "reason", "code", "message", "hint"), ROWS, ids=[row[0] for row in ROWS])
def test_every_cause_is_told_apart(cause, happens, reason, code, message, hint):
    with pytest.raises(errors.HandfastError) as caught:
        happens()
    lines, exit_code = output.describe(caught.value)
    assert (lines["reason"], exit_code) == (reason, code)
    assert message in lines["error"]
    assert hint in lines["hint"]
    assert TOKEN.secret not in "".join(lines.values())


def test_no_message_stands_for_two_causes():
    seen: dict[str, list[str]] = {}
    for cause, happens, *_ in ROWS:
        with pytest.raises(errors.HandfastError) as caught:
            happens()
        seen.setdefault(caught.value.message, []).append(cause)
    alike = [causes for causes in seen.values() if len(causes) > 1]
    # The same thing, found out in two ways.
    assert alike == [
        ["unknown id", "unknown id, as a pinned server says"],
        ["expired, not signing any more", "expired, at login"],
        ["certificate not valid, clocks agree", "certificate not valid, nothing known of the clocks"],
    ]


def test_every_trouble_has_a_row():
    reasons = {reason for _, _, reason, *_ in ROWS}
    for trouble in TROUBLE:
        error = diagnosis.explain(trouble, WHERE, "", None)
        assert error.reason in reasons
        assert error.hint


def test_an_answer_is_an_answer():
    assert diagnosis.answered(200, b"", WHERE) is None


@pytest.mark.parametrize("code", [200, 403, 404, 500])
def test_only_401_is_a_refused_login(code):
    assert diagnosis.login(TOKEN, code, "", signs=True) is None


@pytest.mark.parametrize("signs", [True, False])
def test_a_token_for_another_network(signs):
    challenge = 'Bearer error="invalid_token", error_description="TokenNotFromHere"'
    refused = diagnosis.login(TOKEN, 401, challenge, signs=signs)
    assert refused is not None
    assert refused.reason == "TokenNotFromHere"
    assert refused.message == f"token {TOKEN.id!r} is not accepted from this machine's address"


@pytest.mark.parametrize("challenge", ["", "Bearer", 'Bearer error="invalid_token"', "TokenExpired", "Basic realm=x"])
def test_what_does_not_say_expired(challenge):
    assert diagnosis.asked_unsigned(TOKEN, 401, challenge).reason == "UnknownTokenID"


NOW = datetime.datetime(2026, 11, 15, 12, 0, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("date", "seconds"),
    [
        ("Sun, 15 Nov 2026 12:00:00 GMT", 0),
        ("Sun, 15 Nov 2026 10:00:00 GMT", 7200),
        ("Sun, 15 Nov 2026 12:00:30 GMT", -30),
        ("", None),
        ("Sunday, 15-Nov-26 12:00:00 GMT", None),
        ("Sun, 15 Növ 2026 12:00:00 GMT", None),
        ("Sun, 15 Foo 2026 12:00:00 GMT", None),
        ("Sun, 31 Feb 2026 12:00:00 GMT", None),
        ("Sun, 15 Nov 0000 12:00:00 GMT", None),
        ("Sun, 15 Nov 2026 12:00:00 GMT\n", None),
    ],
)
def test_the_skew_is_read_from_a_date_header_or_is_none(date, seconds):
    assert diagnosis.skew(date, NOW) == (None if seconds is None else datetime.timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s behind"),
        (61, "1m1s ahead of"),
        (-3600, "1h behind"),
        (90_061, "1d1h ahead of"),
        (-86_400 * 400, "1y35d behind"),
    ],
)
def test_a_difference_is_told_in_its_two_largest_units(seconds, text):
    assert diagnosis.difference(datetime.timedelta(seconds=seconds)) == text


def test_clocks_are_named_where_they_may_be_the_cause():
    for error in (diagnosis.unknown_token(TOKEN), diagnosis.expired(TOKEN)):
        assert "3h ahead of the server's" in str(diagnosis.with_clock(error, 3 * HOUR).hint)
    for skew in (None, datetime.timedelta(seconds=59)):
        assert "clock" not in str(diagnosis.with_clock(diagnosis.unknown_token(TOKEN), skew).hint)
        assert diagnosis.clock_notes(skew) == ()
    assert "3h ahead of the server's" in diagnosis.clock_notes(3 * HOUR)[0]
    other = errors.Refused("x", reason="WrongPin", hint="y")
    assert diagnosis.with_clock(other, 3 * HOUR).hint == "y"


@pytest.mark.parametrize(
    ("error", "waited", "worth"),
    [
        (errors.Unavailable("x"), 1e9, True),
        (errors.Refused("x", reason="WrongPin"), 0.0, False),
        (errors.Refused("x", reason="UnknownTokenID"), 29.0, True),
        (errors.Refused("x", reason="UnknownTokenID"), 30.0, False),
        (errors.Refused("x", reason="UsageMissing"), 29.0, True),
        (errors.Refused("x", reason="UsageMissing"), 30.0, False),
        (errors.Refused("x", reason="SignatureMismatch"), 10.0, False),
    ],
)
def test_worth_waiting(error, waited, worth):
    assert diagnosis.worth_waiting(error, waited) is worth


class TestDocument:
    def test_an_answer_of_200_is_the_text(self):
        assert diagnosis.document_text(200, "ä".encode(), "u") == "ä"

    @pytest.mark.parametrize(
        ("code", "body", "reason", "family"),
        [
            (404, b"", "NoDiscoveryDocument", errors.Refused),
            (302, b"", "NoDiscoveryDocument", errors.Refused),
            (503, b"", "ServerNotReady", errors.Unavailable),
            (429, b"", "ServerNotReady", errors.Unavailable),
            (200, b"\xff", "BadClusterInfo", errors.Refused),
        ],
    )
    def test_an_answer_that_is_no_document_is_refused(self, code, body, reason, family):
        with pytest.raises(family) as caught:
            diagnosis.document_text(code, body, "u")
        assert caught.value.reason == reason


class TestLost:
    KNOWN = cluster_info.ClusterInfo(("https://a", "https://b"), CA.pem, "uid")

    def test_all_endpoints_moved(self):
        failed = {url: errors.Unavailable(f"{url} is gone") for url in self.KNOWN.servers}
        error = diagnosis.lost(self.KNOWN, failed)
        assert isinstance(error, errors.Unavailable)
        assert error.reason == "AllEndpointsMoved"
        for word in ("https://a, https://b", str(pins.of_certificate(CA.der)), "uid", "https://b is gone"):
            assert word in error.message
        assert "handfast join" in str(error.hint)

    def test_all_roots_changed(self):
        failed = {
            "https://a": errors.Unavailable("gone"),
            "https://b": diagnosis.explain(TROUBLE.UNTRUSTED, "https://b", "self-signed", None),
        }
        error = diagnosis.lost(self.KNOWN, failed)
        assert (type(error), error.reason) == (errors.Refused, "AllRootsChanged")
        assert "handfast join" in str(error.hint)

    @pytest.mark.parametrize("reason", ["OtherCluster", "AllRootsChanged"])
    def test_what_was_refused_for_what_it_says_is_told(self, reason):
        other = errors.Refused("other", reason=reason)
        assert diagnosis.lost(self.KNOWN, {"https://a": errors.Unavailable("gone"), "https://b": other}) is other

    def test_little_was_known(self):
        known = cluster_info.ClusterInfo(("https://a",), None, "")
        assert "the roots of this system; cluster id unknown" in diagnosis.lost(known, {}).message


@pytest.mark.parametrize(("code", "words"), [(401, "compare its secret half"), (403, "changed on the way")])
def test_which_of_the_two_is_wrong_is_told_where_a_signature_does_not_match(code, words):
    refused = errors.Refused("the signature does not match", reason="SignatureMismatch", hint="either")
    error = diagnosis.asked_mismatched(refused, TOKEN, code)
    assert (error.message, error.reason) == (refused.message, refused.reason)
    assert words in str(error.hint)
