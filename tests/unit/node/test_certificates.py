# SPDX-License-Identifier: Apache-2.0
"""The certificate keeper: which pair, when the next, and what after a failure. What goes over the wire is elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import itertools
import pathlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from handfast import errors
from handfast.api import status
from handfast.client import keeping, requests, transport
from handfast.node import certificate_store, certificates
from handfast.node import renewal as node_renewal
from handfast.pki import keys, names, pairs, renewal
from handfast.rules.certificates import wishes
from handfast.runtime import tls
from tests.unit.node import pairing
from tests.world.clock import START, MovableClock, settle

HOUR = pairing.HOUR
RENEWAL_POINT = renewal.renewal_point


class Server:
    """Stands for the server and its signer: answers by the script, then by certificates of an hour."""

    def __init__(self, clock: MovableClock) -> None:
        self.clock = clock
        self.script: list[errors.HandfastError] = []
        self.asked: list[tuple[float, keys.PublicKey]] = []
        self.lasts = HOUR

    async def obtain(self, client: Any, key: keys.PrivateKey, wanted: wishes.Wanted, **_: Any) -> bytes:
        self.asked.append((self.clock.monotonic(), key.public))
        if self.script:
            raise self.script.pop(0)
        node = wanted.subject.common_name.removeprefix("system:node:")
        begins = self.clock.now().replace(microsecond=0)
        return pairing.pair(node, begins=begins, lasts=self.lasts, key=key, sans=wanted.sans).certificate_pem


class Stage:
    def __init__(self, directory: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = MovableClock()
        self.server = Server(self.clock)
        self.store = certificate_store.CertificateStore(directory, "kubelet-client", self.clock)
        self.wanted: wishes.Wanted | None = wishes.node_client("n1")
        monkeypatch.setattr(requests, "file_and_wait", self.server.obtain)
        # Which point of the window is a node's own is told in TestItsOwnInstants; elsewhere the test says which.
        self.point = 0.0
        monkeypatch.setattr(renewal, "renewal_point", lambda *_: self.point)

    def keeper(self, *, rotate: bool = True, chance: float = 0.0) -> certificates.CertificateKeeper:
        return certificates.CertificateKeeper(
            self.store,
            lambda: self.wanted,
            lambda: None,  # type: ignore[arg-type, return-value]
            clock=self.clock,
            chance=lambda: chance,
            rotate=rotate,
        )

    async def passes(self, seconds: float) -> None:
        """Time, from one sleeper's end to the next, with all that follows from each."""
        await self.clock.passes(seconds)

    @contextlib.asynccontextmanager
    async def running(self, **options: Any) -> AsyncIterator[certificates.CertificateKeeper]:
        keeper = self.keeper(**options)
        keeper.load()
        task = asyncio.create_task(keeper.run())
        await settle(20)
        try:
            yield keeper
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@pytest.fixture
def stage(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path / "pki", monkeypatch)


@pytest.mark.parametrize(
    ("before", "after", "due"),
    [
        ("just issued", (-1, 99), False),
        ("half way", (-24, 24), False),
        ("nearly 70 %", (-69, 31), False),
        ("at 70 %", (-70, 30), True),
        ("just about expired", (-99, 1), True),
        ("already expired", (-10, -1), True),
        ("long", (0, 24 * 400), False),
        ("begins later", (24, 48), False),
    ],
)
def test_a_renewal_is_due_by_the_lifetime_of_the_pair(stage: Stage, before: str, after: tuple[int, int], due: bool):
    begins, ends = (START + hours * HOUR for hours in after)
    stage.store.save(pairing.pair(begins=begins, lasts=ends - begins))
    keeper = stage.keeper()
    keeper.load()
    assert (keeper.due() is not None) is due, before
    assert keeper.next_renewal == begins + (ends - begins) * 0.7


@pytest.mark.parametrize("point", [0.0, 0.5, 0.999])
def test_the_deadline_lies_at_70_to_90_percent_of_the_lifetime(stage: Stage, point: float):
    stage.point = point
    stage.store.save(pairing.pair(begins=START, lasts=10 * HOUR))
    keeper = stage.keeper()
    keeper.load()
    assert keeper.next_renewal is not None
    assert START + 7 * HOUR <= keeper.next_renewal < START + 9 * HOUR
    assert abs((keeper.next_renewal - START) / HOUR - (7 + 2 * point)) < 0.001


class TestItsOwnInstants:
    @pytest.fixture(autouse=True)
    def _real(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(renewal, "renewal_point", RENEWAL_POINT)

    @pytest.mark.parametrize("hours", [0, 12], ids=["the first certificate", "a later one"])
    async def test_a_restart_changes_nothing(self, stage: Stage, hours: int):
        async with stage.running() as before:
            await stage.passes(hours * 3600)
        found = [before.next_renewal]
        for chance in (0.0, 0.3, 0.99):
            keeper = stage.keeper(chance=chance)
            keeper.load()
            found.append(keeper.next_renewal)
        assert found[0] is not None
        assert len(set(found)) == 1

    def test_where_no_instant_is_near_the_certificate_decides(self, stage: Stage):
        apart = renewal.cycle(HOUR)
        epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        since = (START - epoch) // apart
        instant = epoch + apart * (since + renewal.place_in_cycle("kubelet-client system:node:n1"))
        found = set()
        for _ in range(8):
            # Half way between two of them it is as far as can be from the middle of the window.
            stage.store.save(pairing.pair(begins=(instant + apart / 2).replace(microsecond=0), lasts=HOUR))
            keeper = stage.keeper()
            keeper.load()
            found.add(keeper.next_renewal)
        assert len(found) == 8

    async def test_late_once_and_back_with_the_next(self, stage: Stage):
        async with stage.running(chance=0.5) as keeper:
            await stage.passes(12 * 3600)
            usual = keeper.next_renewal
            assert usual is not None
            down = 5 * 60
            stage.server.script = [errors.Unavailable("down", reason="Unreachable")] * (4 + down // 40)
            await stage.passes((usual - stage.clock.now()).total_seconds() + 60)
            assert keeper.renew_errors > 0
            await stage.passes(down)
            assert keeper.last_error is None
            assert keeper.next_renewal is not None
            assert abs(keeper.next_renewal - usual - 0.8 * HOUR) < datetime.timedelta(seconds=1)

    @pytest.mark.parametrize("certificate", ["name", "prefix"])
    def test_names_differ_and_so_do_the_two_certificates(self, stage: Stage, certificate: str):
        found = set()
        for number in range(8):
            name = f"n{number}" if certificate == "name" else "n1"
            prefix = "kubelet-client" if certificate == "name" else f"kubelet-{number}"
            stage.wanted = wishes.node_client(name)
            stage.store = certificate_store.CertificateStore(stage.store.directory, prefix, stage.clock)
            stage.store.save(pairing.pair(name, begins=START, lasts=10 * HOUR))
            keeper = stage.keeper()
            keeper.load()
            found.add(keeper.next_renewal)
        assert len(found) > 2


@pytest.mark.parametrize(
    ("stored", "given", "taken", "why"),
    [
        (None, None, None, "there is no certificate"),
        (pairing.fresh, None, "stored", None),
        (None, pairing.fresh, "given", "the certificate is the kubeconfig's"),
        (pairing.fresh, pairing.fresh, "stored", None),
        (pairing.expired, pairing.fresh, "given", "the certificate is the kubeconfig's"),
        (pairing.expired, None, "stored", "the certificate expired at"),
        (None, pairing.expired, "given", "the certificate is the kubeconfig's"),
    ],
)
async def test_stored_or_from_the_kubeconfig(stage: Stage, stored: Any, given: Any, taken: str | None, why: str | None):
    here = {
        "stored": None if stored is None else stored(),
        "given": None if given is None else given(),
        None: None,
    }
    if here["stored"] is not None:
        stage.store.save(here["stored"])
        await stage.passes(1)
    keeper = stage.keeper()
    assert keeper.load(lambda: here["given"]) == here[taken]
    assert keeper.current() == here[taken]
    assert (keeper.due() or "").startswith(why or "")
    assert (keeper.due() is None) is (why is None)
    if taken == "given":
        assert stage.store.find().pair == here["given"], "written to the store"


@pytest.mark.parametrize("made", [pairing.fresh, pairing.expired])
def test_what_has_expired_is_not_in_use(stage: Stage, made: Any):
    stage.store.save(made())
    with capture_logs() as logs:
        stage.keeper().load()
    word = "certificate in use" if made is pairing.fresh else "the certificate has expired"
    assert [line["event"] for line in logs] == [word]


async def test_a_kubeconfigs_pair_that_cannot_be_stored_is_used_all_the_same(stage: Stage):
    stage.store.directory.mkdir()
    stage.store.current.write_text("a file")
    stage.store.current.chmod(0o600)
    keeper = stage.keeper()
    given = pairing.pair()
    assert keeper.load(lambda: given) == given
    assert keeper.last_error is not None
    assert keeper.last_error.reason == "NotASymlink"


def test_another_nodes_pair_came_with_a_copied_disk(stage: Stage):
    stage.store.save(pairing.pair("other"))
    for rotate in (True, False):
        keeper = stage.keeper(rotate=rotate)
        with capture_logs() as logs:
            assert keeper.load() is None
        assert logs[0]["event"] == "the stored certificate is another's"


@pytest.mark.parametrize(
    ("sans", "why"),
    [
        (names.Sans(dns=("a",)), None),
        (names.Sans(), None),
        (names.Sans(dns=("a", "b")), "the certificate lacks the alternative names DNS:b"),
    ],
)
async def test_what_is_wanted_now(stage: Stage, sans: names.Sans, why: str | None):
    """Addresses change while the agent runs; names that are no longer wanted are no reason."""
    stage.wanted = wishes.node_serving("n1", names.Sans(dns=("a",)))
    async with stage.running() as keeper:
        assert keeper.usable()
        await stage.passes(40)
        stage.wanted = wishes.node_serving("n1", sans)
        assert (keeper.due(), keeper.usable()) == (why, why is None)
        await stage.passes(60)
        assert len(stage.server.asked) == (1 if why is None else 2)
        assert keeper.due() is None


async def test_nothing_wanted_nothing_asked(stage: Stage):
    stage.wanted = None
    async with stage.running() as keeper:
        await stage.passes(600)
        assert (stage.server.asked, keeper.current(), keeper.due()) == ([], None, None)
        stage.wanted = wishes.node_client("n1")
        await stage.passes(60)
        assert keeper.usable()


class TestRun:
    async def test_renewed_before_it_ends_with_a_fresh_key_for_ever(self, stage: Stage):
        told: list[pairs.Pair] = []

        async def listen(pair: pairs.Pair) -> None:
            assert keeper.current() == pair
            told.append(pair)

        async with stage.running() as keeper:
            keeper.subscribe(listen)
            first = keeper.current()
            for hours in range(1, 6):
                await stage.passes(3600)
                pair = keeper.current()
                assert pair is not None
                assert pair.leaf.not_after > stage.clock.now(), hours
            assert len({key.spki for _, key in stage.server.asked}) == len(stage.server.asked)
            assert [told[-1], stage.store.load()] == [keeper.current()] * 2
            assert first not in told
            times = [at for at, _ in stage.server.asked]
            assert all(abs(later - earlier - 2520) < 2 for earlier, later in itertools.pairwise(times))

    async def test_not_before_it_is_told_to(self, stage: Stage):
        stage.server.script = [status.StatusError("TooManyRequests", "later", retry_after=50)]
        async with stage.running() as keeper:
            await stage.passes(49)
            assert len(stage.server.asked) == 1
            await stage.passes(2)
            assert keeper.usable()

    async def test_back_off_for_ever_with_one_key(self, stage: Stage):
        stage.server.script = [errors.Unavailable("down", reason="Unreachable") for _ in range(12)]
        async with stage.running() as keeper:
            await stage.passes(300)
            times = [at for at, _ in stage.server.asked]
            gaps = [round(later - earlier) for earlier, later in itertools.pairwise(times)]
            assert gaps == [2, 4, 8, 16, *([32] * 7), 32][: len(gaps)]
            assert len(gaps) >= 10
            assert len({key.spki for _, key in stage.server.asked}) == 1
            await stage.passes(100)
            assert keeper.usable()
            assert (keeper.renew_errors, keeper.last_error) == (12, None)
            # After a success the waits begin anew.
            stage.server.script = [errors.Unavailable("down", reason="Unreachable")]
            keeper.renew_now()
            await settle(20)
            before = stage.clock.monotonic()
            await stage.passes(3)
            assert stage.server.asked[-1][0] - before <= 2.2
            assert keeper.last_error is None

    @pytest.mark.parametrize("reason", sorted(requests.KEY_IS_SPENT))
    async def test_a_spent_key_is_given_up(self, stage: Stage, reason: str):
        stage.server.script = [errors.Refused("no", reason=reason) for _ in range(12)]
        async with stage.running() as keeper:
            assert not stage.store.has_pending_key()
            assert keeper.last_error == keeping.Failure(START, reason, "no", None)
            await stage.passes(2900)
            times = [at for at, _ in stage.server.asked]
            gaps = [round(later - earlier) for earlier, later in itertools.pairwise(times)]
            assert gaps[:12] == [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600, 600]
            assert len({key.spki for _, key in stage.server.asked}) == len(times)

    @pytest.mark.parametrize("reason", ["RequestDeleted", "RequestReplaced"])
    async def test_a_request_that_was_deleted_is_made_again_with_its_key(self, stage: Stage, reason: str):
        stage.server.script = [errors.Refused("gone", reason=reason) for _ in range(6)]
        async with stage.running() as keeper:
            assert stage.store.has_pending_key()
            assert keeper.server_healthy
            await stage.passes(200)
            times = [at for at, _ in stage.server.asked]
            gaps = [round(later - earlier) for earlier, later in itertools.pairwise(times)]
            assert gaps == [2, 4, 8, 16, 32, 64]
            assert len({key.spki for _, key in stage.server.asked}) == 1
            assert keeper.usable()

    @pytest.mark.parametrize("rotate", [True, False])
    async def test_what_was_asked_for_before_a_crash_is_gone_on_with(self, stage: Stage, rotate: bool):
        stage.store.save(pairing.pair(begins=START, lasts=10 * HOUR))
        key = stage.store.pending_key()
        async with stage.running(rotate=rotate) as keeper:
            await stage.passes(1)
            assert [asked for _, asked in stage.server.asked] == ([key.public] if rotate else [])
            assert keeper.due() is None
        assert stage.store.has_pending_key() is not rotate

    async def test_a_key_that_may_still_be_answered_is_kept(self, stage: Stage):
        stage.server.script = [
            requests.StillPending("wait"),
            errors.Unavailable("later", reason="CertificateNotYetValid"),
            errors.Unavailable("no object", reason="BadAnswer"),
            status.StatusError("Forbidden", "no"),
            status.StatusError("Unauthorized", "who"),
        ]
        async with stage.running() as keeper:
            await stage.passes(120)
            assert keeper.usable()
        assert len({key.spki for _, key in stage.server.asked}) == 1

    async def test_the_wall_clock_is_set_back(self, stage: Stage):
        async with stage.running() as keeper:
            stage.clock._start -= datetime.timedelta(days=1)
            await stage.passes(2519)
            assert len(stage.server.asked) == 1
            with capture_logs() as logs:
                await stage.passes(2)
            assert len(stage.server.asked) == 2
            assert logs[0]["why"] == "the time of renewal has come, and the wall clock was set back"
            assert keeper.current() is not None

    async def test_the_wall_clock_is_set_forward(self, stage: Stage):
        async with stage.running() as keeper:
            stage.clock.set_wall(86400)
            assert not keeper.usable()
            await stage.passes(61)
            assert keeper.usable()
            assert len(stage.server.asked) == 2

    async def test_certificates_that_are_due_at_once_do_not_make_it_spin(self, stage: Stage):
        stage.server.lasts = datetime.timedelta(seconds=1)
        async with stage.running():
            await stage.passes(300)
            assert 8 <= len(stage.server.asked) <= 11

    async def test_a_chain_that_tls_does_not_take_is_left_out(self, stage: Stage, monkeypatch: pytest.MonkeyPatch):
        plain = tls.load_pair

        def picky(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
            if certificate.count(b"BEGIN") > 1:
                raise errors.Refused("the certificate and its private key cannot be used: CA_MD_TOO_WEAK")
            plain(context, certificate, key)

        async def obtain(client: Any, key: keys.PrivateKey, wanted: wishes.Wanted, **more: Any) -> bytes:
            return await stage.server.obtain(client, key, wanted, **more) + pairing.CA.pem

        monkeypatch.setattr(requests, "file_and_wait", obtain)
        async with stage.running() as keeper:
            assert [len(pair.chain) for pair in (keeper.current(), stage.store.load()) if pair] == [2, 2]
        monkeypatch.setattr(tls, "load_pair", picky)
        async with stage.running() as keeper:
            keeper.renew_now()
            await stage.passes(1)
            assert [len(pair.chain) for pair in (keeper.current(), stage.store.load()) if pair] == [1, 1]

    async def test_a_certificate_that_tls_does_not_take_is_refused(self, stage: Stage, monkeypatch: pytest.MonkeyPatch):
        """It is neither stored nor used, its key is given up, and the next one is asked for."""
        trouble = [errors.Refused("no"), errors.Refused("no")]

        def picky(*_: Any) -> None:
            if trouble:
                raise trouble.pop()

        monkeypatch.setattr(tls, "load_pair", picky)
        async with stage.running() as keeper:
            assert keeper.last_error is not None
            assert keeper.last_error.reason == "WrongCertificate"
            assert (keeper.current(), stage.store.load(), stage.store.has_pending_key()) == (None, None, False)
            await stage.passes(5)
            assert keeper.usable()
            assert len({key.spki for _, key in stage.server.asked}) == 2

    async def test_renew_now(self, stage: Stage):
        async with stage.running() as keeper:
            first = keeper.current()
            keeper.renew_now()
            await settle(20)
            assert keeper.current() != first
            assert keeper.due() is None

    async def test_a_bug_is_not_swallowed(self, stage: Stage, monkeypatch: pytest.MonkeyPatch):
        keeper = stage.keeper()
        monkeypatch.setattr(stage.store, "pending_key", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await keeper.run()


class TestHold:
    async def test_what_is_there(self, stage: Stage):
        made = pairing.fresh()
        stage.store.save(made)
        keeper = stage.keeper()
        keeper.load()
        assert await keeper.ensure(300) == made
        assert stage.server.asked == []

    @pytest.mark.parametrize("rotate", [True, False])
    async def test_asked_for_also_with_rotation_off(self, stage: Stage, rotate: bool):
        keeper = stage.keeper(rotate=rotate)
        keeper.load()
        assert (await keeper.ensure(300)) == keeper.current() == stage.store.load()

    async def test_waits_only_so_long(self, stage: Stage):
        stage.server.script = [errors.Unavailable("the server is down", reason="Unreachable") for _ in range(99)]
        keeper = stage.keeper()
        keeper.load()
        ensuring = asyncio.create_task(keeper.ensure(300))
        await settle(20)
        await stage.passes(299)
        assert not ensuring.done()
        await stage.passes(2)
        await settle(20)
        with pytest.raises(errors.Unavailable) as caught:
            await ensuring
        assert caught.value.reason == "BootstrapTimeout"
        assert caught.value.message == (
            "no certificate was obtained within 300 seconds; the last error: the server is down"
        )
        assert caught.value.hint == "start again: the same key and the same request are used"
        assert stage.store.has_pending_key()

    async def test_told_at_once_what_waiting_does_not_mend(self, stage: Stage):
        stage.server.script = [errors.Refused("never", reason="RequestDenied")]
        keeper = stage.keeper()
        keeper.load()
        with pytest.raises(errors.Refused, match="never"):
            await keeper.ensure(300, patient=False)
        assert len(stage.server.asked) == 1

    async def test_a_refusal_without_a_word_of_ours_may_pass(self, stage: Stage):
        """A proxy's, or that of a server that has just started."""
        bare = status.StatusError("Forbidden", "not you")
        stage.server.script = [bare, status.StatusError("Unauthorized", "who?"), bare, bare]
        keeper = stage.keeper()
        keeper.load()
        ensuring = asyncio.create_task(keeper.ensure(300, patient=False))
        await settle(20)
        await stage.passes(29)
        assert not ensuring.done()
        await stage.passes(2)
        await settle(20)
        assert await ensuring == keeper.current()
        assert len(stage.server.asked) == 5

    @pytest.mark.parametrize(("seconds", "ends"), [(300, 30), (10, 10)])
    async def test_a_refusal_that_stays_is_told(self, stage: Stage, seconds: float, ends: float):
        """After half a minute, or when the time is over: as a refusal, whatever was asked with how often."""
        stage.server.script = [status.StatusError("Forbidden", "not you") for _ in range(99)]
        keeper = stage.keeper()
        keeper.load()
        ensuring = asyncio.create_task(keeper.ensure(seconds, patient=False))
        await settle(20)
        await stage.passes(ends - 1.5)
        assert not ensuring.done()
        await stage.passes(2)
        await settle(20)
        with pytest.raises(errors.Refused, match="the cluster refuses the request: not you") as caught:
            await ensuring
        assert caught.value.reason == "Forbidden"
        assert "system:node-bootstrapper" in str(caught.value.hint)

    async def test_refusals_count_from_the_last_answer_of_another_kind(self, stage: Stage):
        bare, down = status.StatusError("Forbidden", "not you"), errors.Unavailable("down", reason="Unreachable")
        stage.server.script = [bare, bare, bare, down, *[bare] * 99]
        keeper = stage.keeper()
        keeper.load()
        ensuring = asyncio.create_task(keeper.ensure(300, patient=False))
        await settle(20)
        # Asked after 2, 6, 14 (down), 30 seconds: half a minute from then.
        await stage.passes(59)
        assert not ensuring.done()
        await stage.passes(2)
        await settle(20)
        with pytest.raises(errors.Refused, match="not you"):
            await ensuring

    async def test_a_final_word_is_told_rather_than_another_refusal(self, stage: Stage):
        """Of two ways to ask, one is refused for good and the other without a word."""
        stage.store.save(pairing.expired())
        bare, denied = status.StatusError("Forbidden", "not you"), errors.Refused("never", reason="RequestDenied")
        stage.server.script = [bare, denied] * 20
        keeper = stage.keeper()
        keeper.load()
        ensuring = asyncio.create_task(keeper.ensure(300, patient=False))
        await settle(20)
        await stage.passes(20)
        assert not ensuring.done()
        await stage.passes(20)
        with pytest.raises(errors.Refused, match="never"):
            await ensuring

    async def test_an_agent_goes_on_asking_whoever_refuses(self, stage: Stage):
        stage.server.script = [errors.Refused("never", reason="RequestDenied") for _ in range(99)]
        keeper = stage.keeper()
        keeper.load()
        ensuring = asyncio.create_task(keeper.ensure(60))
        await settle(20)
        await stage.passes(61)
        await settle(20)
        with pytest.raises(errors.Unavailable) as caught:
            await ensuring
        assert caught.value.reason == "BootstrapTimeout"
        assert len(stage.server.asked) > 1

    async def test_an_expired_pair_is_another_way_to_ask(self, stage: Stage):
        """The bootstrap token and the pair are asked with in turns: one of them may be let in."""
        stage.store.save(pairing.expired())
        passing = errors.Unavailable("down", reason="Unreachable")
        token, pair = (errors.Refused(word, reason="RequestDenied") for word in ("the token", "the pair"))
        stage.server.script = [token, passing, token, pair]
        keeper = stage.keeper()
        keeper.load()
        ensuring = asyncio.create_task(keeper.ensure(300, patient=False))
        await settle(20)
        await stage.passes(60)
        with pytest.raises(errors.Refused, match="the token"):
            await ensuring
        assert len(stage.server.asked) == 4

    async def test_nothing_to_say(self, stage: Stage):
        stage.wanted = None
        keeper = stage.keeper()
        keeper.load()
        ensuring = asyncio.create_task(keeper.ensure(10))
        await settle(20)
        await stage.passes(11)
        with pytest.raises(errors.Unavailable, match=r"^no certificate was obtained within 10 seconds$"):
            await ensuring


class TestRotationOff:
    async def test_only_loads(self, stage: Stage):
        stored = pairing.fresh()
        stage.store.save(stored)
        keeper = stage.keeper(rotate=False)
        keeper.load()
        await keeper.run()
        assert (keeper.current(), stage.server.asked) == (stored, [])
        with pytest.raises(errors.Refused, match="not rotated") as caught:
            keeper.renew_now()
        assert caught.value.reason == "RotationOff"

    @pytest.mark.parametrize("node", ["n1", "somebody-else"])
    async def test_the_kubeconfigs_pair_counts_whatever_its_name(self, stage: Stage, node: str):
        stage.store.save(pairing.fresh())
        given = pairing.fresh(node)
        keeper = stage.keeper(rotate=False)
        assert keeper.load(lambda: given) == given
        assert keeper.usable()
        assert stage.store.load() != given

    async def test_until_it_has_ended(self, stage: Stage):
        stored = pairing.fresh()
        stage.store.save(stored)
        keeper = stage.keeper(rotate=False)
        assert keeper.load(pairing.expired) == stored


@pytest.mark.parametrize(
    ("error", "healthy"),
    [
        (status.StatusError("Unauthorized", "who are you"), True),
        (status.StatusError("NotFound", "no such resource"), True),
        (status.StatusError("Forbidden", "not you"), True),
        (transport.status_error(b"404 page not found", 404), False),
        (transport.status_error(b"<html>forbidden</html>", 403), False),
        (transport.status_error(b"", 401), True),
        (status.StatusError("InternalError", "oops"), False),
        (errors.Unavailable("down", reason="Unreachable"), False),
        (errors.Unavailable("slow", reason="Timeout"), False),
        (requests.StillPending("nobody approved"), True),
        (errors.Refused("denied", reason="RequestDenied"), True),
    ],
)
def test_is_the_server_up(error: errors.HandfastError, healthy: bool):
    assert node_renewal.healthy_after(error) is healthy


async def test_a_weak_key_is_not_asked_for(tmp_path: pathlib.Path, stage: Stage):
    def weak() -> keys.PrivateKey:
        raise errors.Refused("an RSA key must have 2048 to 8192 bits, not 1024", reason="WeakKey")

    stage.store = certificate_store.CertificateStore(tmp_path / "weak", "kubelet-client", stage.clock, generate=weak)
    async with stage.running() as keeper:
        assert keeper.last_error is not None
        assert keeper.last_error.reason == "WeakKey"
        assert stage.server.asked == []
