# SPDX-License-Identifier: Apache-2.0
"""Opening a console: a one-time address becomes a session. What a code is, is in `rules.console.codes`.

1. An address has a code, which is good for a minute and for one browser. It is redeemed by a GET that answers with a redirect and a cookie: the code stays neither
   in the address bar, nor in a Referer, nor in the log. A HEAD redeems nothing.
2. A session is known by 256 random bits in a cookie that scripts cannot read (HttpOnly), that no other site can have sent along (SameSite=Strict), and that has
   the prefix `__Host-` where there is TLS. Its name has the port, since cookies do not know ports: two consoles on one machine would sign each other's
   operator out. Here only their digest is kept.
3. A session ends when it was not used for eight hours, or when its operator signs out; a restart ends all of them.
4. There are at most `MANY`: with one more, the one that was not used for longest ends.
5. Every form has a token of its own, bound to the session and to where the form is sent.

| who | holding | tries | stopped by | shown in tests/unit/console/test_opening.py |
|---|---|---|---|---|
| whoever finds the address later | a code that was used | open a second browser with it | 1 | test_a_code_opens_one_browser |
| … | the same, when `handfast up` has started the console again | the same | 1: a code of before that opens nothing | test_a_code_of_before_a_restart_opens_nothing |
| another user of the machine | the port | guess a session | 2: 256 bits | test_a_session_that_nobody_has_is_none |
| whoever takes a laptop over lunch | the browser | go on the next day | 3 | test_a_session_ends_when_it_was_idle_for_eight_hours |
| another site | a form of its own | have it sent by the operator's browser | 5, and `doors` | test_a_form_token_is_of_one_session_and_one_form |
| a reader of memory or logs | what is kept here | act as the operator | 2: digests | test_what_is_kept_does_not_open_anything |

Not stopped: a program on another port of the same host name. Browsers send it the cookie when the operator visits it, since cookies do not know ports
(docs/console.md, "What it does not protect").
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib import parse as urls

from handfast import errors
from handfast.rules.console import codes
from handfast.runtime import clock as clocks

PATH: Final = "/open"
IDLE_SECONDS: Final = 8 * 3600.0
MANY: Final = 32
ONCE_SECONDS: Final = 600.0
# Codes that may be in use at once: each lives for a minute, and whoever makes them has the key.
_CODES: Final = 4096
USED: Final = "OpeningCodeUsed"
# What a code that opens nothing is refused with.
NOT_GOOD: Final = frozenset({codes.UNKNOWN, codes.EXPIRED, USED})
_COOKIE: Final = "handfast-console"


class Opening:
    """Judges codes, and remembers those that were used."""

    def __init__(self, key: bytes, clock: clocks.Clock) -> None:
        self._key = key
        self._clock = clock
        self._begun = clock.monotonic()
        self._used: dict[str, float] = {}

    def code(self) -> str:
        """A new one, for the person at the terminal."""
        return new_code(self._key, self._clock.now())

    def redeem(self, code: str) -> None:
        """Return if a code is good, and was not used; from now on it was (1)."""
        wall, now = self._clock.now(), self._clock.monotonic()
        nonce = codes.judge(self._key, code, wall)
        # Which codes were used before it was started again with the same key, nobody knows. A code tells whole seconds.
        if codes.age(code, wall) > now - self._begun + 1.0:
            raise errors.Refused("this address was made before the console was started again", reason=codes.EXPIRED)
        if nonce in self._used or len(self._used) >= _CODES:
            self._forget(now)
        if nonce in self._used:
            raise errors.Refused("this address has opened a console already, and does so only once", reason=USED)
        if len(self._used) >= _CODES:
            raise errors.Unavailable("too many addresses were opened in a minute", reason="TooManyOpened")
        self._used[nonce] = now

    def _forget(self, now: float) -> None:
        """Codes that are too old to be judged good anyway: the clock on the wall may have been set, so they are kept for twice as long."""
        self._used = {nonce: at for nonce, at in self._used.items() if now - at <= 2 * codes.SECONDS}


def new_key() -> bytes:
    """A key for codes."""
    return secrets.token_bytes(codes.KEY_BYTES)


def new_code(key: bytes, now: datetime.datetime) -> str:
    """A code that nobody has used."""
    return codes.make(key, secrets.token_bytes(codes.NONCE_BYTES), now)


def address(base: str, code: str) -> str:
    """What is printed."""
    return f"{base}{PATH}?code={code}"


@dataclass(slots=True)
class Session:
    """One browser. What it is told once, it is told on the page that it is for, within `ONCE_SECONDS`."""

    form_key: bytes = field(repr=False)
    used_at: float
    said: list[tuple[bool, str]] = field(default_factory=list)
    _once: tuple[str, float, Mapping[str, Any]] | None = field(default=None, repr=False)
    streams: int = 0
    ended: bool = False
    # Told when it ends: its streams.
    ends: set[Callable[[], None]] = field(default_factory=set, repr=False)

    def tell_once(self, path: str, now: float, once: Mapping[str, Any] | None) -> None:
        """Keep for one page what it shows once; what was kept before is gone."""
        self._once = None if once is None else (urls.unquote(path), now + ONCE_SECONDS, once)

    def told_once(self, path: str, now: float) -> Mapping[str, Any] | None:
        """What a page shows once. From now on it is gone; another page leaves it where it is."""
        if self._once is None or self._once[1] < now:
            self._once = None
            return None
        if self._once[0] != urls.unquote(path):
            return None
        (_, _, once), self._once = self._once, None
        return once

    def form_token(self, path: str) -> str:
        """What a form that is sent to `path` has to show (5)."""
        return hmac.new(self.form_key, path.encode(), hashlib.sha256).hexdigest()

    def require_form(self, path: str, token: str) -> None:
        """Return if a form was made here, for this session and this path."""
        if not hmac.compare_digest(self.form_token(path).encode(), token.encode()):
            raise errors.Refused(
                "this form is not one that this console made for you, or it is from before you signed in again",
                reason="FormNotOurs",
                hint="open the page again and send it once more; nothing was done",
            )


class Sessions:
    """The browsers that are let in."""

    def __init__(self, clock: clocks.Clock, *, secure: bool, port: int) -> None:
        self._clock = clock
        self._secure = secure
        self._port = port
        self._sessions: dict[bytes, Session] = {}

    @property
    def cookie(self) -> str:
        """Its name (2)."""
        name = f"{_COOKIE}-{self._port}"
        return f"__Host-{name}" if self._secure else name

    def begin(self) -> str:
        """A new session; what is returned is its cookie, as a header's value."""
        # 4. bounded
        while len(self._sessions) >= MANY:
            self._drop(min(self._sessions, key=lambda digest: self._sessions[digest].used_at))
        secret = secrets.token_urlsafe(32)
        self._sessions[_digest(secret)] = Session(secrets.token_bytes(32), self._clock.monotonic())
        return f"{self.cookie}={secret}; {self._attributes()}"

    def find(self, cookies: Mapping[str, str]) -> Session | None:
        """The session that a request shows; None: none."""
        digest = _digest(cookies.get(self.cookie, ""))
        session = self._sessions.get(digest)
        if session is None:
            return None
        now = self._clock.monotonic()
        # 3. idle for too long
        if now - session.used_at > IDLE_SECONDS:
            self._drop(digest)
            return None
        return session

    def use(self, session: Session) -> None:
        """Its operator did something: a stream that stays open is nothing of theirs."""
        session.used_at = self._clock.monotonic()

    def end(self, cookies: Mapping[str, str]) -> str:
        """Sign out; what is returned takes the cookie away."""
        self._drop(_digest(cookies.get(self.cookie, "")))
        return f"{self.cookie}=; {self._attributes()}; Max-Age=0"

    def _drop(self, digest: bytes) -> None:
        session = self._sessions.pop(digest, None)
        if session is not None:
            session.ended = True
            for tell in session.ends:
                tell()

    def _attributes(self) -> str:
        return "Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if self._secure else "")


def _digest(secret: str) -> bytes:
    # A header may have octets that are no text.
    return hashlib.sha256(secret.encode(errors="surrogateescape")).digest()
