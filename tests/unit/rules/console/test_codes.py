# SPDX-License-Identifier: Apache-2.0
"""Codes that open a console: made with its key, good for a minute."""

from __future__ import annotations

import datetime

import pytest

from handfast import errors
from handfast.rules.console import codes

NOW = datetime.datetime(2026, 11, 18, 9, 0, tzinfo=datetime.UTC)
KEY = b"k" * codes.KEY_BYTES
NONCE = b"n" * codes.NONCE_BYTES


def later(seconds: float) -> datetime.datetime:
    return NOW + datetime.timedelta(seconds=seconds)


def refusal(code: str, now: datetime.datetime = NOW, key: bytes = KEY) -> str:
    with pytest.raises(errors.Refused) as refused:
        codes.judge(key, code, now)
    # What it was given is not said again: it could be a good code of another console.
    assert code not in refused.value.message or not code
    return refused.value.reason


def test_a_code_is_good_for_a_minute():
    code = codes.make(KEY, NONCE, NOW)
    nonces = {codes.judge(KEY, code, later(seconds)) for seconds in (-5, 0, 59, 60)}
    assert len(nonces) == 1
    assert refusal(code, later(61)) == codes.EXPIRED
    assert refusal(code, later(-6)) == codes.EXPIRED


def test_a_code_of_another_key_is_refused():
    assert refusal(codes.make(KEY, NONCE, NOW), key=b"o" * codes.KEY_BYTES) == codes.UNKNOWN


def test_a_code_whose_time_was_changed_is_refused():
    _, nonce, seal = codes.make(KEY, NONCE, NOW).split(".")
    assert refusal(f"{int(later(3600).timestamp()):x}.{nonce}.{seal}", later(3600)) == codes.UNKNOWN


def test_two_codes_have_two_nonces():
    first, second = codes.make(KEY, NONCE, NOW), codes.make(KEY, b"m" * codes.NONCE_BYTES, NOW)
    assert codes.judge(KEY, first, NOW) != codes.judge(KEY, second, NOW)


@pytest.mark.parametrize("code", ["", "a.b.c", "0.0.0\n", "x" * 10_000, codes.make(KEY, NONCE, NOW) + "x"])
def test_what_is_no_code_is_refused(code: str):
    assert refusal(code) == codes.UNKNOWN
