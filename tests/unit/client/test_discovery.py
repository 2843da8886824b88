# SPDX-License-Identifier: Apache-2.0
"""The search: order, waiting, fallbacks and diagnoses, against servers that are a table of answers."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import email.utils

import msgspec
import pytest

from handfast import errors
from handfast.bootstrap import cluster_info, diagnosis, discovery, endpoints, tokens
from handfast.client import anonymous
from handfast.client import discovery as searching
from handfast.pki import pins as pins_module
from tests.unit.pki import making
from tests.world import tls_cluster
from tests.world.clock import MovableClock
from tests.world.tls_cluster import OTHER, TOKEN, refusal

A, B, C = "https://a:6443", "https://b:6443", "https://c:6443"
CA, NEXT = making.ca("one"), making.ca("two")
PIN = pins_module.of_certificate(CA.der)
INFO = cluster_info.ClusterInfo((A, B), CA.pem, "uid")
TROUBLE = diagnosis.Trouble


def document(info=INFO, *by):
    return msgspec.json.encode(tls_cluster.signed(cluster_info.build(info), *by))


def status(code, *causes):
    challenge = "".join(f'Bearer error="invalid_token", error_description="{cause}"' for cause in causes)
    return anonymous.Answer(code, tls_cluster.status(code, "Any").body, challenge=challenge)


class Servers:
    """What each server does: answers, by whoever trusts its CA. Every question is remembered."""

    def __init__(self, clock, **answers):
        self.clock = clock
        self.answers = answers
        self.cas = dict.fromkeys(answers, CA.pem)
        self.asked = []
        self.delays = {}
        self.date = ""

    def row(self, url):
        return next(name for name in self.answers if f"//{name}:" in url or url.endswith(f"//{name}"))

    async def __call__(self, url, trust, token=None):
        # The proposal: the client must not use a bearer token here. Not even after the server was verified.
        assert token is None or url.endswith("/version"), url
        name = self.row(url.removesuffix("/version").split("/api/")[0])
        verified = isinstance(trust, anonymous.Trust)
        self.asked.append((name, verified, token is not None))
        if name in self.delays:
            await self.clock.sleep(self.delays[name])
        else:
            await asyncio.sleep(0)
        if verified and (trust.ca is None or self.cas[name] not in trust.ca):
            raise anonymous.Troubled(TROUBLE.UNTRUSTED, "self-signed")
        found = self.answers[name]
        if callable(found):
            found = found(verified=verified, token=token)
        elif token is not None:
            found = status(403)
        if isinstance(found, TROUBLE):
            raise anonymous.Troubled(found, "details")
        return found if isinstance(found, anonymous.Answer) else anonymous.Answer(200, found, self.date)


@pytest.fixture
def clock():
    return MovableClock()


class Told(list[str]):
    def report(self, text):
        self.append(text)


@pytest.fixture
def told():
    return Told()


def by_token(servers, *typed, pins=(PIN,), timeout=300.0, told=None):
    search = searching.Discovery(
        servers.clock, ask=servers, timeout=timeout, report=Told().report if told is None else told.report
    )
    work = search.by_token([endpoints.parse(text) for text in typed], discovery.ByToken(TOKEN, tuple(pins)))
    return run(servers.clock, work)


async def run(clock, work):
    """Time passes whenever everybody waits."""
    task = asyncio.ensure_future(work)
    while not task.done():
        for _ in range(100):
            await asyncio.sleep(0)
        if not task.done():
            await clock.advance(0.25)
    return task.result()


class TestByToken:
    async def test_two_fetches_and_no_credential(self, clock):
        servers = Servers(clock, a=document())
        found = await by_token(servers, "a")
        assert (found.info, found.server, found.notes) == (INFO, A, ())
        assert servers.asked == [("a", False, False), ("a", True, False)]

    @pytest.mark.parametrize(("seconds", "named"), [(59, False), (61, True), (-7200, True)])
    async def test_a_clock_that_differs_is_named(self, clock, seconds, named):
        servers = Servers(clock, a=document(), b=document(), c=document())
        theirs = clock.now() - datetime.timedelta(seconds=seconds)
        servers.date = email.utils.format_datetime(theirs, usegmt=True)
        for typed in ("a", "c"):
            notes = (await by_token(servers, typed)).notes
            assert [text.partition(" the server's")[0] for text in notes] == (
                [f"this machine's clock is {'1m1s ahead of' if seconds > 0 else '2h behind'}"] if named else []
            )

    async def test_without_pins_it_is_fetched_twice_too(self, clock):
        servers = Servers(clock, a=document())
        assert (await by_token(servers, "a", pins=())).server == A
        assert servers.asked == [("a", False, False), ("a", True, False)]

    async def test_the_servers_of_the_cluster_are_used(self, clock):
        servers = Servers(clock, a=document(), b=document(), c=document())
        found = await by_token(servers, "c")
        assert (found.server, found.notes) == (A, ())

    async def test_the_second_server_if_the_first_is_down(self, clock):
        servers = Servers(clock, a=TROUBLE.CONNECTION_REFUSED, b=document(), c=document())
        assert (await by_token(servers, "c")).server == B

    async def test_the_typed_one_is_the_fallback(self, clock):
        servers = Servers(clock, a=TROUBLE.NO_ANSWER, b=TROUBLE.CONNECTION_REFUSED, c=document())
        found = await by_token(servers, "c")
        assert found.server == C
        assert "none of the servers that the cluster names answers here" in found.notes[0]

    async def test_a_typed_server_of_the_list_stays(self, clock):
        servers = Servers(clock, a=document(), b=document())
        assert (await by_token(servers, "b")).server == B

    async def test_a_typed_name_that_the_certificate_lacks(self, clock):
        def c(*, verified, token):
            return TROUBLE.WRONG_NAME if verified else document()

        servers = Servers(clock, a=document(), b=document(), c=c)
        assert (await by_token(servers, "c")).server == A

    async def test_and_no_other_server_either(self, clock):
        def c(*, verified, token):
            return TROUBLE.WRONG_NAME if verified else document()

        servers = Servers(clock, a=TROUBLE.NO_ANSWER, b=TROUBLE.NO_ANSWER, c=c)
        assert (await refusal(by_token(servers, "c"))).reason == "WrongServerName"

    async def test_a_rotation_with_both_pinned(self, clock):
        both = dataclasses.replace(INFO, ca=CA.pem + NEXT.pem)
        servers = Servers(clock, a=document(both))
        servers.cas["a"] = NEXT.pem
        pinned = [PIN, pins_module.of_certificate(NEXT.der)]
        assert (await by_token(servers, "a", pins=pinned)).info == both
        assert (await refusal(by_token(servers, "a"))).reason == "TLSInterception"

    async def test_different_the_second_time(self, clock):
        def a(*, verified, token):
            return document(dataclasses.replace(INFO, id="other") if verified else INFO)

        servers = Servers(clock, a=a)
        error = await refusal(by_token(servers, "a"))
        assert error.reason == "ClusterInfoChanged"
        assert 10 <= clock.monotonic() < 15


class TestWaiting:
    @pytest.mark.parametrize(
        ("first", "word"),
        [
            (TROUBLE.CONNECTION_REFUSED, "refuses connections"),
            (TROUBLE.NAME_NOT_FOUND, "resolved"),
            (TROUBLE.NO_ANSWER, "did not answer"),
            (status(404), "no ConfigMap"),
            (status(403), "without a credential"),
            (anonymous.Answer(502, b"<html>"), "answered 502"),
            (msgspec.json.encode(tls_cluster.config_map(None)), "no kubeconfig key"),
            (msgspec.json.encode(tls_cluster.config_map(cluster_info.build(INFO))), "no signature at all"),
            (document(INFO, OTHER), "'abcdef'"),
        ],
    )
    async def test_what_comes_later_is_waited_for(self, clock, told, first, word):
        def a(*, verified, token):
            return first if clock.monotonic() < 20 else document()

        found = await by_token(Servers(clock, a=a), "a", told=told, pins=())
        assert found.server == A
        assert 20 <= clock.monotonic() < 25
        assert len(told) == 1
        assert told[0].startswith("waiting: ")
        assert word in told[0]

    async def test_who_waits_long_is_told_again(self, clock, told):
        error = await refusal(by_token(Servers(clock, a=TROUBLE.CONNECTION_REFUSED), "a", told=told))
        assert (error.reason, type(error)) == ("ConnectionRefused", errors.Unavailable)
        assert error.message.startswith("gave up after 300s: ")
        assert clock.monotonic() == pytest.approx(300, abs=3)
        assert len(told) == 10
        assert told[1].startswith("still waiting: ")

    async def test_the_time_is_kept_while_nobody_answers(self, clock):
        servers = Servers(clock, a=document())
        servers.delays["a"] = 1e6
        error = await refusal(by_token(servers, "a", timeout=7))
        assert (error.reason, type(error)) == ("Timeout", errors.Unavailable)
        assert clock.monotonic() == pytest.approx(7, abs=1)

    @pytest.mark.parametrize(
        ("answer", "reason", "seconds"),
        [
            (b"<html>", "NotAnAPIServer", 0),
            (TROUBLE.NOT_TLS, "NotAnAPIServer", 0),
            (document(dataclasses.replace(INFO, ca=NEXT.pem)), "WrongPin", 0),
            (document(INFO, OTHER), "UnknownTokenID", 30),
        ],
    )
    async def test_what_does_not_pass_is_not_waited_for(self, clock, answer, reason, seconds):
        wanted = (PIN,) if reason == "WrongPin" else ()
        error = await refusal(by_token(Servers(clock, a=answer), "a", pins=wanted))
        assert (error.reason, type(error)) == (reason, errors.Refused)
        assert clock.monotonic() == pytest.approx(seconds, abs=2.5)


class TestSeveral:
    async def test_the_first_is_preferred(self, clock):
        servers = Servers(clock, a=document(), b=document())
        servers.delays = {"a": 0.1, "b": 0.01}
        assert (await by_token(servers, "a", "b")).server == A
        assert {name for name, _, _ in servers.asked} == {"a"}

    async def test_a_slow_one_is_overtaken(self, clock):
        servers = Servers(clock, a=document(), b=document())
        servers.delays = {"a": 5.0, "b": 0.01}
        assert (await by_token(servers, "a", "b")).server == B
        assert clock.monotonic() < 2

    async def test_a_dead_one_costs_no_time(self, clock):
        servers = Servers(clock, a=TROUBLE.CONNECTION_REFUSED, b=document())
        assert (await by_token(servers, "a", "b")).server == B
        assert clock.monotonic() == 0

    async def test_one_that_is_refused_is_not_asked_again(self, clock):
        def b(*, verified, token):
            return TROUBLE.CONNECTION_REFUSED if clock.monotonic() < 20 else document()

        servers = Servers(clock, a=b"<html>", b=b)
        assert (await by_token(servers, "a", "b")).server == B
        assert [name for name, _, _ in servers.asked].count("a") == 1

    async def test_the_most_telling_error_comes_first(self, clock):
        unsigned = msgspec.json.encode(tls_cluster.config_map(cluster_info.build(INFO)))
        servers = Servers(clock, a=TROUBLE.CONNECTION_REFUSED, b=unsigned)
        error = await refusal(by_token(servers, "a", "b", timeout=10))
        assert error.reason == "SignatureMissing"
        assert "https://a:6443 refuses connections" in error.message

        servers = Servers(clock, a=TROUBLE.CONNECTION_REFUSED, b=b"<html>")
        error = await refusal(by_token(servers, "a", "b", timeout=10))
        assert error.reason == "NotAnAPIServer"
        assert type(error) is errors.Refused

    async def test_a_bug_is_not_waited_for(self, clock):
        async def ask(url, trust, token=None):
            raise errors.Misuse("bug")

        search = searching.Discovery(clock, ask=ask)
        with pytest.raises(errors.Misuse):
            await run(clock, search.by_token([endpoints.parse("a")], discovery.ByToken(TOKEN, ())))


class TestWhyATokenDoesNotSign:
    """Asked only where the server is under a pinned certificate."""

    @pytest.mark.parametrize(
        ("answer", "reason"),
        [
            (status(401), "UnknownTokenID"),
            (status(401, "TokenExpired"), "TokenExpired"),
            (status(403), "UsageMissing"),
            (TROUBLE.NO_ANSWER, "UnknownTokenID"),
        ],
    )
    async def test_a_pinned_server_is_asked_why(self, clock, answer, reason):
        def a(*, verified, token):
            return document(INFO, OTHER) if token is None else answer

        servers = Servers(clock, a=a)
        servers.date = "Thu, 01 Jan 2015 00:00:00 GMT"
        error = await refusal(by_token(servers, "a"))
        assert error.reason == reason
        assert ("a", True, True) in servers.asked
        assert ("clock is" in str(error.hint)) == (reason in {"UnknownTokenID", "TokenExpired"})

    @pytest.mark.parametrize(
        ("answer", "hint"),
        [
            (status(401), "compare its secret half"),
            (status(403), "the cluster accepts token"),
            (TROUBLE.NO_ANSWER, "or somebody in between changes"),
        ],
    )
    async def test_it_is_asked_once_whether_a_secret_half_is_wrong(self, clock, answer, hint):
        mistyped = tokens.Token(TOKEN.id, "x" * 16)

        def a(*, verified, token):
            return document(INFO, mistyped) if token is None else answer

        servers = Servers(clock, a=a)
        error = await refusal(by_token(servers, "a"))
        assert (error.reason, hint in str(error.hint)) == ("SignatureMismatch", True)
        assert servers.asked.count(("a", True, True)) == 1
        assert servers.asked.count(("a", False, False)) > 1
        unpinned = Servers(clock, a=a)
        assert (await refusal(by_token(unpinned, "a", pins=()))).reason == "SignatureMismatch"
        assert {token for _, _, token in unpinned.asked} == {False}

    async def test_not_without_pins(self, clock):
        servers = Servers(clock, a=document(INFO, OTHER))
        assert (await refusal(by_token(servers, "a", pins=()))).reason == "UnknownTokenID"
        assert {token for _, _, token in servers.asked} == {False}

    async def test_after_one_failure_not_again(self, clock):
        """Asked for half a minute, by a server that has nothing to lose."""

        def a(*, verified, token):
            return document(INFO, OTHER) if token is None else TROUBLE.NO_ANSWER

        servers = Servers(clock, a=a)
        assert (await refusal(by_token(servers, "a"))).reason == "UnknownTokenID"
        assert servers.asked.count(("a", False, False)) > 10
        assert servers.asked.count(("a", True, True)) == 1

    async def test_a_long_text_is_not_read(self, clock):
        text = cluster_info.build(INFO)
        long = text + "#" * (cluster_info.MAX_UNVERIFIED + 1 - len(text))
        servers = Servers(clock, a=msgspec.json.encode(tls_cluster.signed(long, OTHER)))
        assert (await refusal(by_token(servers, "a"))).reason == "UnknownTokenID"
        assert ("a", True, True) not in servers.asked

    async def test_not_with_another_ca(self, clock):
        servers = Servers(clock, a=document(dataclasses.replace(INFO, ca=NEXT.pem), OTHER))
        servers.cas["a"] = NEXT.pem
        assert (await refusal(by_token(servers, "a"))).reason == "UnknownTokenID"
        assert {token for _, _, token in servers.asked} == {False}


class TestClocks:
    async def test_a_certificate_and_a_date(self, clock):
        def a(*, verified, token):
            return TROUBLE.NOT_VALID_NOW if verified else document()

        servers = Servers(clock, a=a)
        servers.date = "Thu, 01 Jan 2015 00:00:00 GMT"
        assert (await refusal(by_token(servers, "a"))).reason == "ClockSkew"
        servers.date = ""
        assert (await refusal(by_token(servers, "a"))).reason == "CertificateNotValid"

    async def test_a_date_is_fetched_to_tell(self, clock):
        def a(*, verified, token):
            return TROUBLE.NOT_VALID_NOW if verified else b"<html>"

        servers = Servers(clock, a=a, b=TROUBLE.CONNECTION_REFUSED)
        servers.date = "Thu, 01 Jan 2015 00:00:00 GMT"
        search = searching.Discovery(clock, ask=servers, timeout=5)
        assert (await refusal(run(clock, search.refreshed(INFO, A)))).reason == "ClockSkew"

    async def test_and_if_that_fails_it_is_not_told(self, clock):
        def a(*, verified, token):
            return TROUBLE.NOT_VALID_NOW if verified else TROUBLE.NO_ANSWER

        search = searching.Discovery(clock, ask=Servers(clock, a=a), timeout=5)
        assert (await refusal(run(clock, search.refreshed(INFO, A)))).reason == "CertificateNotValid"


class TestByDocument:
    def search(self, servers, info=INFO, *typed):
        search = searching.Discovery(servers.clock, ask=servers, timeout=20)
        text = cluster_info.build(info)
        return run(servers.clock, search.by_document(text, [endpoints.parse(one) for one in typed]))

    async def test_over_verified_tls_only(self, clock):
        servers = Servers(clock, a=document(), b=document())
        found = await self.search(servers)
        assert (found.info, found.server) == (INFO, A)
        assert servers.asked == [("a", True, False)]

    async def test_what_is_new_is_taken_over(self, clock):
        fresh = cluster_info.ClusterInfo((C,), CA.pem + NEXT.pem, "uid")
        servers = Servers(clock, a=document(fresh), b=document(fresh), c=document(fresh))
        found = await self.search(servers)
        assert (found.info, found.server) == (fresh, C)

    async def test_a_server_under_a_new_root_alone_is_not_used_yet(self, clock):
        fresh = cluster_info.ClusterInfo((C,), CA.pem + NEXT.pem, "uid")
        servers = Servers(clock, a=document(fresh), b=document(fresh), c=document(fresh))
        servers.cas["c"] = NEXT.pem
        found = await self.search(servers)
        assert (found.info, found.server) == (fresh, A)
        assert found.notes

    @pytest.mark.parametrize("code", [401, 403, 404])
    async def test_what_is_not_published_is_not_missed(self, clock, code):
        found = await self.search(Servers(clock, a=status(code), b=status(code)))
        assert (found.info, found.server) == (INFO, A)
        assert "used as it is" in found.notes[0]

    async def test_typed_endpoints_are_asked_after_those_of_the_document(self, clock):
        servers = Servers(clock, a=TROUBLE.NO_ANSWER, b=TROUBLE.NO_ANSWER, c=document())
        assert (await self.search(servers, INFO, "c", "a")).server == C
        assert [name for name, _, _ in servers.asked][:3] == ["a", "b", "c"]

    async def test_another_cluster(self, clock):
        servers = Servers(clock, a=document(dataclasses.replace(INFO, id="x")), b=TROUBLE.NO_ANSWER)
        assert (await refusal(self.search(servers))).reason == "OtherCluster"

    async def test_without_a_ca_the_system_decides(self, clock):
        servers = Servers(clock, a=document(), b=document())
        error = await refusal(self.search(servers, dataclasses.replace(INFO, ca=None)))
        assert error.reason == "TLSInterception"
        assert "a CA that this system trusts" in error.message

    async def test_credentials_are_refused(self, clock):
        servers = Servers(clock)
        search = searching.Discovery(clock, ask=servers)
        text = cluster_info.build(INFO).replace("users: []", "users: [{name: a, user: {client-key-data: x}}]")
        with pytest.raises(errors.Refused, match=r"users\[0\].user.client-key-data"):
            await search.by_document(text, ())
        assert servers.asked == []


class TestDocument:
    async def fetch(self, clock, answer, ca=CA.pem):
        search = searching.Discovery(clock, ask=Servers(clock, a=answer), timeout=20)
        return await run(clock, search.fetch_document("https://a:6443/api/?signature=secret", ca))

    async def test_the_text_of_the_url_is_returned(self, clock):
        assert await self.fetch(clock, b"text") == "text"

    async def test_a_server_that_is_not_up_is_waited_for(self, clock):
        def a(*, verified, token):
            return anonymous.Answer(503, b"") if clock.monotonic() < 10 else b"text"

        assert await self.fetch(clock, a) == "text"

    @pytest.mark.parametrize(
        ("answer", "ca", "reason", "word"),
        [
            (anonymous.Answer(404, b""), CA.pem, "NoDiscoveryDocument", "received status 404"),
            (b"x", NEXT.pem, "TLSInterception", "--discovery-ca-file"),
            (b"x", None, "TLSInterception", "a CA that this system trusts"),
        ],
    )
    async def test_what_cannot_be_used_is_refused_without_the_query(self, clock, answer, ca, reason, word):
        error = await refusal(self.fetch(clock, answer, ca))
        assert error.reason == reason
        assert word in error.message
        assert "secret" not in error.message


class TestLogin:
    FOUND = searching.Cluster(info=INFO, server=A, skew=datetime.timedelta(hours=2))

    async def login(self, clock, answer, *, signs=True):
        servers = Servers(clock, a=lambda **_: answer)
        search = searching.Discovery(clock, ask=servers)
        accepted = await run(clock, search.login(self.FOUND, TOKEN, signs=signs))
        assert set(servers.asked) == {("a", True, True)}
        return accepted

    @pytest.mark.parametrize(
        ("answer", "accepted"), [(status(403), True), (b"", True), (status(404), False), (status(500), False)]
    )
    async def test_the_answer_says_whether_the_token_is_let_in(self, clock, answer, accepted):
        assert await self.login(clock, answer) is accepted

    @pytest.mark.parametrize(
        ("answer", "signs", "reason"),
        [
            (status(401), True, "UsageMissing"),
            (status(401), False, "TokenRefused"),
            (status(401, "TokenExpired"), True, "TokenExpired"),
            (TROUBLE.UNTRUSTED, True, "TLSInterception"),
        ],
    )
    async def test_a_refused_token_is_told_with_its_reason(self, clock, answer, signs, reason):
        begun = clock.monotonic()
        error = await refusal(self.login(clock, answer, signs=signs))
        assert error.reason == reason
        if reason == "TokenRefused":
            assert "2h ahead of" in str(error.hint)
        # What does not say why may be a proxy's.
        said = reason in {"TokenExpired", "TLSInterception"}
        assert (clock.monotonic() - begun < 1) if said else (30 <= clock.monotonic() - begun < 35)

    async def test_a_refusal_that_does_not_say_why_may_pass(self, clock):
        left = [status(401), status(401)]
        servers = Servers(clock, a=lambda **_: left.pop() if left else b"")
        search = searching.Discovery(clock, ask=servers)
        assert await run(clock, search.login(self.FOUND, TOKEN, signs=True))
        assert len(servers.asked) == 3

    @pytest.mark.parametrize("trouble", [dataclasses.replace(status(429), retry_after=7), TROUBLE.UNREACHABLE])
    async def test_a_server_that_is_busy_is_asked_again(self, clock, trouble):
        """As behind an address that many share: see decision 31."""
        begun, left = clock.monotonic(), [trouble, trouble]
        servers = Servers(clock, a=lambda **_: left.pop() if left else b"")
        search = searching.Discovery(clock, ask=servers)
        assert await run(clock, search.login(self.FOUND, TOKEN, signs=True))
        assert len(servers.asked) == 3
        # Not before it was told to.
        assert clock.monotonic() - begun >= (14 if trouble is not TROUBLE.UNREACHABLE else 4)

    async def test_a_server_that_stays_busy_is_given_up(self, clock):
        servers = Servers(clock, a=lambda **_: status(429))
        search = searching.Discovery(clock, ask=servers, timeout=60.0)
        error = await refusal(run(clock, search.login(self.FOUND, TOKEN, signs=True)))
        assert (error.reason, error.message) == (
            "ServerNotReady", f"gave up after 60s: {A} is busy: it answered 429, too many requests",
        )  # fmt: skip


class TestBusy:
    async def test_who_is_told_to_come_later_goes_on_where_it_was(self, clock):
        """The second of two fetches is asked again, and not both."""
        answers = [document(), status(429), status(429), document()]
        servers = Servers(clock, a=lambda **_: answers.pop(0))
        assert (await by_token(servers, "a")).server == A
        assert servers.asked == [("a", False, False), *[("a", True, False)] * 3]

    async def test_what_was_heard_is_told_when_the_time_is_up(self, clock):
        servers = Servers(clock, a=lambda **_: dataclasses.replace(status(429), retry_after=30))
        error = await refusal(by_token(servers, "a", timeout=20.0))
        assert error.message == f"gave up after 20s: {A} is busy: it answered 429, too many requests"


def test_each_server_is_merged_once_whatever_its_spelling():
    assert searching.merged([A, "https://a:6443/"], [B, "https://A:6443", "https://c"]) == [A, B, "https://c"]
