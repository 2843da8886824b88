# SPDX-License-Identifier: Apache-2.0
"""The whole way of a request to the console.

1. The doors: networks, Host, method, Origin (`doors`).
2. What needs no session: `/livez` for a supervisor, scripts and styles, and the address that opens a session (`opening`).
3. The session. Without one there is a page that says how to get one, and nothing else.
4. A form: its token belongs to this session and this path, then its action runs as the operator. What came of it is said on the next page,
   whether it was done or refused, after a redirect: to load that page again sends nothing twice. A secret alone is in the answer itself (`page.Outcome`).
5. A live stream, a range of rows, or a page: all three are made from what the page shows (`Page.show`), the parts of a page by the same blocks.
6. What goes wrong is a page with a sentence, a reason and a next step. What nobody expected is a sentence, too, and is told to the log.

| who | holding | tries | stopped by | shown in tests/unit/console/test_handler.py |
|---|---|---|---|---|
| another user of this machine | the port | read a page | 3 | test_without_a_session_there_is_one_page |
| a site that the operator visits | a form with every field but its token | have something approved | 4 | test_a_form_without_its_token_does_nothing |
| whoever may write objects | an object that no rule can read | a blank page, or a traceback | 6 | test_what_nobody_expected_is_a_sentence |
| a reader of the log | the log | find a code or a cookie | 2: neither is logged | test_no_code_and_no_cookie_is_logged |
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib import parse as urls

import structlog

from handfast import errors
from handfast.api import status
from handfast.console import assets as assets_module
from handfast.console import doors as doors_module
from handfast.console import forms, html, live, opening, rendering
from handfast.console import known as known_module
from handfast.console import page as page_module
from handfast.console.pages import table
from handfast.rules.console import questions
from handfast.runtime import clock as clocks
from handfast.serving import answers, event_stream, service

_log = structlog.get_logger("handfast.console")
LIVE: Final = "/live"
SIGN_OUT: Final = "/sign-out"
_ROWS: Final = "/rows"
# What is around every page, and live on all of them.
AROUND: Final = ("banner", "navigation")


class Handler:
    """Answers for one console; `reopen` says how its operator gets another address."""

    def __init__(
        self,
        known: known_module.Known,
        doors: doors_module.Doors,
        codes: opening.Opening,
        sessions: opening.Sessions,
        clock: clocks.Clock,
        *,
        reopen: str,
        pages: Sequence[page_module.Page] = table.PAGES,
    ) -> None:
        self._known = known
        self._doors = doors
        self._codes = codes
        self._sessions = sessions
        self._clock = clock
        self._reopen = reopen
        self._pages = {page.path: page for page in pages}
        self._actions = {action.path: action for page in pages for action in page.actions}
        self._assets = assets_module.Assets()
        self._renderer = rendering.Renderer(
            {"asset": self._assets.link, "version": importlib.metadata.version("handfast"), "sign_out": SIGN_OUT}
        )
        self.hub = live.Hub(self._parts, clock)
        known.listen(self.hub.changed)

    async def answer(self, http: service.Request) -> answers.Response:
        """One request."""
        request = doors_module.Request(http.method, service.peer_of(http).address, http.headers)
        try:
            # 1. the doors
            self._doors.require(request)
            # 2. what needs no session
            if (answer := self._for_anybody(http)) is not None:
                return answer
            # 3. the session
            session = None if self._doors.is_led_here(request) else self._sessions.find(http.cookies)
            if session is None:
                return self._closed(led_here=self._doors.is_led_here(request))
            service.proved(http, "operator")
            return await self._for_operator(http, session)
        except ConnectionError:
            raise
        except doors_module.NotOurs as refused:
            return self._sorry(refused, refused.code)
        except (errors.Refused, errors.Unavailable) as error:
            code = status.from_error(error).code
            return self._sorry(error, max(code, 400))
        except Exception as error:  # noqa: BLE001  6. every request is answered with a page
            _log.error("a page failed", path=http.path, exc_info=error)
            return self._sorry(_unexpected(), 500)

    def _for_anybody(self, http: service.Request) -> answers.Answer | None:
        if http.path == "/livez":
            return html.text("ok\n")
        if http.path.startswith(assets_module.PREFIX):
            return self._assets.answer(http.path) or html.text("there is no such file\n", 404)
        if http.path == opening.PATH and http.method == "GET":
            self._codes.redeem(http.query.get("code", ""))
            answer = html.go_to("/")
            answer.add("Set-Cookie", self._sessions.begin())
            return answer
        return None

    def _closed(self, *, led_here: bool) -> answers.Answer:
        """There is no session: how to get one."""
        return html.page(
            self._renderer.page("closed.html", {"reopen": self._reopen, "led_here": led_here}), 200 if led_here else 401
        )

    def _sorry(self, error: errors.HandfastError, code: int) -> answers.Answer:
        """6. a sentence, a reason, a next step"""
        hint = error.hint or ""
        if error.reason in opening.NOT_GOOD:
            hint = self._reopen
        values = {"message": error.message, "reason": error.reason, "hint": hint, "code": code}
        return html.page(self._renderer.page("sorry.html", values), code)

    async def _for_operator(self, http: service.Request, session: opening.Session) -> answers.Response:
        if http.method == "POST":
            self._sessions.use(session)
            return await self._act(http, session)
        if http.path == LIVE:
            return await self._follow(http, session)
        self._sessions.use(session)
        return await self._show(http, session)

    # --- 4. forms

    async def _act(self, http: service.Request, session: opening.Session) -> answers.Answer:
        form = await forms.read(http)
        session.require_form(http.path, form.pop("form-token", ""))
        if http.path == SIGN_OUT:
            answer = html.page(self._renderer.page("closed.html", {"reopen": self._reopen, "led_here": False}))
            answer.add("Set-Cookie", self._sessions.end(http.cookies))
            return answer
        action = self._actions.get(http.path)
        if action is None:
            raise doors_module.NotOurs(404, "there is no such form", reason="NotFound")
        try:
            outcome = await action.act(self._known, form)
        except (errors.Refused, errors.Unavailable) as error:
            hint = f" Next: {error.hint}." if error.hint else ""
            session.said.append((False, f"Not done: {error.message} (reason {error.reason}).{hint}"))
            return html.go_to(action.back)
        if outcome.here:
            page, question = self._asked(outcome.then, {})
            return await self._page(page, question, session, [(outcome.done, outcome.sentence)], outcome.once)
        session.said.append((outcome.done, outcome.sentence))
        session.tell_once(outcome.then, self._clock.monotonic(), outcome.once)
        return html.go_to(outcome.then)

    # --- 5. pages

    def _found(self, path: str) -> tuple[page_module.Page, str]:
        """The page of a path, and the object that it names."""
        if path in self._pages:
            return self._pages[path], ""
        above, _, name = path.rpartition("/")
        page = self._pages.get(f"{above}/*")
        if page is None or not name:
            raise doors_module.NotOurs(404, "there is no such page", reason="NotFound", hint="begin at the overview: /")
        return page, urls.unquote(name, errors="replace")

    def _asked(self, path: str, query: Mapping[str, str]) -> tuple[page_module.Page, questions.Question]:
        page, of = self._found(path)
        return page, questions.read(path, query, of)

    async def _show(self, http: service.Request, session: opening.Session) -> answers.Answer:
        path = http.rel_url.raw_path
        # An object may be called `rows`, too: its page is asked for with nothing behind it, a range of rows with a question.
        if path.endswith(_ROWS) and path != _ROWS and http.query:
            return await self._rows(path.removesuffix(_ROWS), http.query)
        page, question = self._asked(path, http.query)
        said, session.said = session.said, []
        once = session.told_once(path, self._clock.monotonic())
        return await self._page(page, question, session, said, once)

    async def _page(
        self,
        page: page_module.Page,
        question: questions.Question,
        session: opening.Session,
        said: Sequence[tuple[bool, str]],
        once: Mapping[str, Any] | None,
    ) -> answers.Answer:
        values = {**await self._values(page, question), "said": said, "once": once}
        return html.page(self._renderer.filled(self._renderer.page(page.template, values), session.form_token))

    async def _rows(self, path: str, query: Mapping[str, str]) -> answers.Answer:
        page, question = self._asked(path, query)
        if not page.rows:
            raise doors_module.NotOurs(404, "this page has no rows", reason="NotFound")
        values = await self._values(page, question)
        rows, beside = (self._renderer.block(page.template, name, values) for name in ("rows", "beside"))
        answer = html.page(f"<table><tbody>{rows}</tbody></table>{beside}")
        answer.add("Handfast-Total", str(values["range"].total))
        answer.add("Handfast-From", str(values["range"].start))
        return answer

    async def _values(self, page: page_module.Page, question: questions.Question) -> dict[str, Any]:
        """What a page and what is around it say."""
        # Every page says that clocks differ: somebody has to have looked, and looks again while they do.
        if page.facts or self._known.clocks_differ() is not False:
            self._known.looking.want()
        own = await page.show(self._known, question)
        return {**self._around(page, question), **own}

    def _around(self, page: page_module.Page, question: questions.Question) -> dict[str, Any]:
        known = self._known
        badges = known.once("badges", table.NEEDS, self._badges)
        in_the_way, troubles = known.server_trouble(), known.troubles(page.needs)
        sure = known.is_sure(page.needs)
        return {
            "now": self._clock.now(),
            "page": page,
            "question": question,
            "pages": [each for each in self._pages.values() if each.name],
            "badges": badges,
            "cluster": known.cluster,
            "skew": known.skew() if known.clocks_differ() else None,
            "in_the_way": in_the_way,
            "troubles": troubles,
            # Whether none of something means that there is none.
            "sure": sure,
            # What is said above every page is not said again for each need.
            "own_troubles": [each for each in troubles if in_the_way is None or each.way is not in_the_way.way],
            "hidden": known.hidden(),
            "is_read": known.is_read(),
            "unread": len(known.unread),
            "said": [],
            "once": None,
        }

    def _badges(self) -> dict[str, page_module.Badge | None]:
        """The numbers in the navigation. One that cannot be made is left out: every page would fail for it."""
        made: dict[str, page_module.Badge | None] = {}
        for each in self._pages.values():
            try:
                made[each.path] = each.badge(self._known)
            except Exception as error:  # noqa: BLE001  6. told to the log
                _log.error("a badge failed", page=each.path, exc_info=error)
                made[each.path] = None
        return made

    async def _parts(self, page: page_module.Page, question: questions.Question) -> dict[str, str]:
        """The parts of a page that are live, by name."""
        values = await self._values(page, question)
        return {name: self._renderer.block(page.template, name, values) for name in (*AROUND, *page.live)}

    async def _follow(self, http: service.Request, session: opening.Session) -> answers.Response:
        query = dict(http.query)
        page, question = self._asked(query.pop("page", "/"), query)
        self.hub.room(session.streams)
        stream = event_stream.EventStream(http, html.UNKEPT)
        session.streams += 1
        session.ends.add(stream.wake)
        try:
            await self.hub.follow(
                page,
                question,
                stream,
                http.headers.get("Last-Event-ID", ""),
                lambda part: self._renderer.filled(part, session.form_token),
                lambda: not session.ended and self._sessions.find(http.cookies) is session,
            )
        finally:
            session.streams -= 1
            session.ends.discard(stream.wake)
        return stream.answer


def _unexpected() -> errors.HandfastError:
    return errors.Refused(
        "this page could not be made",
        reason="InternalError",
        hint="this is a bug; the log of the console has the details",
    )
