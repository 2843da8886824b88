# SPDX-License-Identifier: Apache-2.0
"""What every agent is told: when it is computed again, under which version, and what is never told."""

from __future__ import annotations

from handfast.rules.mesh import issuer, reports
from handfast.wire import agent_messages
from tests.unit.mesh.agents.agents_world import ANCHORS, NOW, WEB, World
from tests.unit.rules.mesh.issued_cases import HOUR, entry, sha

USER = "system:serviceaccount:shop:web"


async def test_nothing_is_told_before_everything_is_known():
    made = World()
    assert "Revocations" in made.announcement.why_not
    made.revocations.end()
    assert made.announcement.why_not == "the ledger was not listed"
    made.announcement.issuance.end()
    assert made.announcement.why_not == "nothing was computed"
    async with made.running():
        await made.tick()
        assert made.announcement.version == 0
        made.know()
        await made.tick()
        assert made.announcement.version >= reports.version_at(NOW)
        assert made.announcement.why_not == ""


async def test_what_says_the_same_is_no_other_version():
    made = World()
    made.know()
    heard: list[int] = []
    made.announcement.subscribe(lambda: heard.append(made.announcement.version))
    async with made.running():
        made.revoke(user="jane")
        made.issue(WEB)
        await made.tick()
        assert len(heard) == 1
        made.revoke(user=USER)
        await made.tick()
        made.revoke("again", user=USER)
        await made.tick()
        assert heard == sorted(set(heard))
        assert len(heard) == 2
        assert made.announcement.denied.certificates == {WEB.certificate}


async def test_a_revocation_that_ends_by_itself_is_news():
    made = World()
    made.know()
    made.issue(WEB)
    made.revoke(user=USER, expires=f"{NOW + HOUR / 2:%Y-%m-%dT%H:%M:%SZ}")
    async with made.running():
        await made.tick()
        before = made.announcement.version
        assert made.announcement.denied.names
        await made.clock.advance(HOUR.total_seconds() / 2 + 1)
        assert not made.announcement.denied.names
        assert made.announcement.version > before


async def test_the_end_of_a_revocation_is_news_to_a_timer_that_is_a_moment_early_too():
    """Timers go by another clock than ends do, and on a busy machine by a reading of it that is old."""
    made = World()
    made.know()
    made.issue(WEB)
    made.revoke(user=USER, expires=f"{NOW + HOUR / 2:%Y-%m-%dT%H:%M:%SZ}")
    async with made.running():
        await made.tick()
        assert made.announcement.denied.names
        await made.clock.passes(HOUR.total_seconds() / 2 - 10)
        made.clock.set_wall(-0.05)
        await made.clock.passes(11)
        assert not made.announcement.denied.names


async def test_a_certificate_that_only_ends_is_no_news():
    made = World()
    made.know()
    made.issue(WEB, entry(number=2, lives=3 * HOUR))
    made.revoke(node="n1")
    async with made.running():
        await made.tick()
        before = made.announcement.version
        await made.clock.advance(2 * HOUR.total_seconds())
        assert made.announcement.version == before
        # With the next change it goes.
        made.issue(entry(number=3, lives=4 * HOUR))
        await made.tick()
        assert made.announcement.denied.certificates == {sha("web 2"), sha("web 3")}


async def test_anchors_that_are_not_good_change_nothing():
    made = World()
    made.know()
    async with made.running():
        await made.tick()
        before = made.announcement.version
        for text in ("", "no certificate"):
            made.anchor(text)
            await made.tick()
        assert (made.announcement.version, made.announcement.anchors) == (before, ANCHORS)
        more = ANCHORS + issuer.generate(NOW).anchors.decode()
        made.anchor(more)
        await made.tick()
        assert made.announcement.anchors == more
        assert made.announcement.version > before


async def test_without_good_anchors_nothing_is_told():
    made = World()
    made.anchor("")
    made.know()
    async with made.running():
        await made.tick()
        assert made.announcement.version == 0
        assert made.announcement.why_not == "there are no trust anchors"


async def test_who_is_to_have_signed_is_told_while_the_root_is_replaced():
    made = World()
    made.know()

    def signer() -> str:
        return str(agent_messages.Update.FromString(made.announcement.octets).signer)

    async with made.running():
        await made.tick()
        before = made.announcement.version
        assert signer() == ""
        made.anchor(ANCHORS, "00ff")
        await made.tick()
        assert (signer(), made.announcement.version > before) == ("00ff", True)
        made.anchor(ANCHORS)
        await made.tick()
        assert signer() == ""
