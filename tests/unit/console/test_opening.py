# SPDX-License-Identifier: Apache-2.0
"""Opening: one code, one browser, one session, and its end."""

from __future__ import annotations

import pytest

from handfast import errors
from handfast.console import opening
from handfast.rules.console import codes
from tests.world.clock import MovableClock

KEY = opening.new_key()


def opened(sessions: opening.Sessions) -> dict[str, str]:
    """The cookies of a browser that was let in."""
    name, _, value = sessions.begin().partition(";")[0].partition("=")
    return {name: value}


def test_a_code_opens_one_browser():
    clock = MovableClock()
    door = opening.Opening(KEY, clock)
    code = door.code()
    door.redeem(code)
    with pytest.raises(errors.Refused) as used:
        door.redeem(code)
    assert used.value.reason == opening.USED
    door.redeem(door.code())


async def test_a_code_of_before_a_restart_opens_nothing():
    """`handfast up` starts a console that has ended again, with the same key: what was used before, it does not know."""
    clock = MovableClock()
    door = opening.Opening(KEY, clock)
    code = door.code()
    door.redeem(code)
    await clock.advance(10)
    again = opening.Opening(KEY, clock)
    with pytest.raises(errors.Refused, match="before the console was started again") as old:
        again.redeem(code)
    assert old.value.reason == codes.EXPIRED
    again.redeem(again.code())


async def test_a_code_that_was_used_stays_used_while_it_would_be_good():
    clock = MovableClock()
    door = opening.Opening(KEY, clock)
    code = door.code()
    door.redeem(code)
    await clock.advance(codes.SECONDS)
    with pytest.raises(errors.Refused) as used:
        door.redeem(code)
    assert used.value.reason == opening.USED
    await clock.advance(codes.SECONDS)
    with pytest.raises(errors.Refused) as old:
        door.redeem(code)
    assert old.value.reason == codes.EXPIRED


async def test_what_is_remembered_of_codes_is_bounded(monkeypatch):
    monkeypatch.setattr(opening, "_CODES", 2)
    clock = MovableClock()
    door = opening.Opening(KEY, clock)
    door.redeem(door.code())
    door.redeem(door.code())
    with pytest.raises(errors.Unavailable):
        door.redeem(door.code())
    await clock.advance(3 * codes.SECONDS)
    door.redeem(door.code())


def test_a_session_that_nobody_has_is_none():
    sessions = opening.Sessions(MovableClock(), secure=False, port=8765)
    cookies = opened(sessions)
    assert sessions.find(cookies) is not None
    assert sessions.find({}) is None
    assert sessions.find({sessions.cookie: "guessed"}) is None


async def test_a_session_ends_when_it_was_idle_for_eight_hours():
    clock = MovableClock()
    sessions = opening.Sessions(clock, secure=False, port=8765)
    cookies = opened(sessions)
    for _ in range(3):
        await clock.advance(opening.IDLE_SECONDS - 1)
        session = sessions.find(cookies)
        assert session is not None
        sessions.use(session)
    await clock.advance(opening.IDLE_SECONDS + 1)
    assert sessions.find(cookies) is None
    assert session is not None
    assert session.ended


def test_signing_out_ends_it():
    sessions = opening.Sessions(MovableClock(), secure=False, port=8765)
    cookies = opened(sessions)
    assert "Max-Age=0" in sessions.end(cookies)
    assert sessions.find(cookies) is None


def test_a_form_token_is_of_one_session_and_one_form():
    sessions = opening.Sessions(MovableClock(), secure=False, port=8765)
    one, other = sessions.find(opened(sessions)), sessions.find(opened(sessions))
    assert one is not None
    assert other is not None
    one.require_form("/tokens/create", one.form_token("/tokens/create"))
    for token in (one.form_token("/requests/approve"), other.form_token("/tokens/create"), "", "ü"):
        with pytest.raises(errors.Refused) as refused:
            one.require_form("/tokens/create", token)
        assert refused.value.reason == "FormNotOurs"


def test_what_is_kept_does_not_open_anything():
    sessions = opening.Sessions(MovableClock(), secure=False, port=8765)
    secret = next(iter(opened(sessions).values()))
    assert secret not in repr(vars(sessions))
    assert KEY.hex() not in repr(vars(opening.Opening(KEY, MovableClock())) | {"_key": None})
    session = sessions.find({sessions.cookie: secret})
    assert session is not None
    session.tell_once("/tokens/new", 0.0, {"token": "abcdef.secret"})
    assert "secret" not in repr(session)
    assert "form_key" not in repr(session)


async def test_sessions_are_bounded_and_the_one_unused_for_longest_ends():
    clock = MovableClock()
    sessions = opening.Sessions(clock, secure=False, port=8765)
    cookies = []
    for _ in range(opening.MANY + 1):
        cookies.append(opened(sessions))
        await clock.advance(1)
    assert sessions.find(cookies[0]) is None
    assert all(sessions.find(each) is not None for each in cookies[1:])


def test_a_cookie_is_for_this_host_alone():
    plain, secure = (
        opening.Sessions(MovableClock(), secure=False, port=8765),
        opening.Sessions(MovableClock(), secure=True, port=8765),
    )
    assert plain.begin().endswith("; Path=/; HttpOnly; SameSite=Strict")
    assert secure.begin().startswith("__Host-")
    assert secure.begin().endswith("; HttpOnly; SameSite=Strict; Secure")
    assert "Domain" not in secure.begin()


def test_an_address_has_its_code_where_it_is_redeemed():
    assert opening.address("http://127.0.0.1:8765", "c") == "http://127.0.0.1:8765/open?code=c"


def test_what_is_told_once_is_told_on_its_page_within_ten_minutes():
    session = opening.Session(b"", 0.0)
    session.tell_once("/requests/a%20b", 0.0, {"why": "typed"})
    # Another page leaves it where it is.
    assert session.told_once("/requests", 1.0) is None
    assert session.told_once("/requests/a b", 1.0) == {"why": "typed"}
    assert session.told_once("/requests/a b", 1.0) is None
    session.tell_once("/tokens", 0.0, {"why": "typed"})
    assert session.told_once("/tokens", opening.ONCE_SECONDS + 1) is None
    assert session.told_once("/tokens", 1.0) is None
    session.tell_once("/tokens", 0.0, {"why": "typed"})
    session.tell_once("/tokens", 0.0, None)
    assert session.told_once("/tokens", 1.0) is None


def test_two_consoles_on_one_machine_leave_each_other_signed_in():
    """Cookies do not know ports."""
    one, other = (opening.Sessions(MovableClock(), secure=False, port=port) for port in (8765, 8766))
    cookies = opened(one) | opened(other)
    assert one.find(cookies) is not None
    assert other.find(cookies) is not None
    one.end(cookies)
    assert (one.find(cookies), other.find(cookies) is not None) == (None, True)


def test_a_cookie_that_is_no_text_is_a_strangers():
    sessions = opening.Sessions(MovableClock(), secure=False, port=8765)
    assert sessions.find({sessions.cookie: b"\xff\xfe".decode(errors="surrogateescape")}) is None
