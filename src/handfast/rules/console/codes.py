# SPDX-License-Identifier: Apache-2.0
"""One-time codes that open a console: made by whoever has its key, and judged by the console. It keeps nothing and asks no clock.

A code is `<second, in hex>.<nonce>.<HMAC-SHA256 of both under the key>`.

1. It has this form, and is short.
2. It was made with the key of this console. That is compared in constant time, before anything else is said of it.
3. It was made at most `SECONDS` ago, and not in the future: the clock is that of the same machine.
4. That it was not used before is the console's to know: it remembers nonces for as long as their codes live (`console.opening`).

| who | holding | tries | stopped by | shown in tests/unit/rules/console/test_codes.py |
|---|---|---|---|---|
| another user of this machine | the address without its code | guess a code | 2: 256 bits | test_a_code_of_another_key_is_refused |
| whoever finds an old address | a code of yesterday | use it | 3 | test_a_code_is_good_for_a_minute |
| … | the same, with its time changed | use it | 2 | test_a_code_whose_time_was_changed_is_refused |
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import re
from typing import Final

from handfast import errors

SECONDS: Final = 60
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 16
# Clocks that are set while a code is on its way to the browser.
_AHEAD: Final = 5
_FORM: Final = re.compile(r"([0-9a-f]{1,12})\.([A-Za-z0-9_-]{22})\.([A-Za-z0-9_-]{43})\Z")
UNKNOWN: Final = "OpeningCodeUnknown"
EXPIRED: Final = "OpeningCodeExpired"


def make(key: bytes, nonce: bytes, now: datetime.datetime) -> str:
    """A code; `nonce` are random octets that were never used with this key."""
    body = f"{int(now.timestamp()):x}.{_text(nonce)}"
    return f"{body}.{_seal(key, body)}"


def judge(key: bytes, code: str, now: datetime.datetime) -> str:
    """The nonce of a code that is good now; else it is refused."""
    # 1. the form
    match = _FORM.match(code)
    if match is None:
        raise errors.Refused("this address has no code that opens the console", reason=UNKNOWN)
    second, nonce, seal = match.groups()
    # 2. of this console
    if not hmac.compare_digest(_seal(key, f"{second}.{nonce}"), seal):
        raise errors.Refused("the code in this address is not one of this console", reason=UNKNOWN)
    # 3. fresh
    if not -_AHEAD <= age(code, now) <= SECONDS:
        raise errors.Refused(f"the code in this address is older than {SECONDS} seconds", reason=EXPIRED)
    return nonce


def age(code: str, now: datetime.datetime) -> float:
    """How many seconds ago a code was made, by what it says; its form is that of a code."""
    return now.timestamp() - int(code.partition(".")[0], 16)


def _seal(key: bytes, body: str) -> str:
    return _text(hmac.digest(key, body.encode("ascii"), hashlib.sha256))


def _text(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode("ascii")
