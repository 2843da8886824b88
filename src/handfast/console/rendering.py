# SPDX-License-Identifier: Apache-2.0
"""Templates to HTML. The words that every template has are defined here and in `templates/words.html`. It decides nothing.

1. Every value is escaped (autoescape), and a name that is not given is an error (StrictUndefined), never an empty place.
2. A text that a stranger wrote goes through `|shown`: what cannot be printed is marked, and its direction stays its own (`<bdi>`).
3. A part of a page is a block of its template, made by itself from the same values: what is sent live is what the whole page has.
4. A form has a place for its token, which is filled in when the page goes out: so one rendering serves every session.

| who | holding | tries | stopped by | shown in tests/unit/console/test_rendering.py |
|---|---|---|---|---|
| whoever names an object | markup in the name | run a script in the operator's browser | 1, and the policy of `answers` | test_markup_in_a_name_stays_text |
| … | a change of direction | pass for another name | 2 | test_what_cannot_be_printed_is_marked |
| … | the place of a form's token | have the token put into a name | 4: nobody can guess it | test_nobody_can_write_the_place_of_a_token |
"""

from __future__ import annotations

import datetime
import pathlib
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final, cast
from urllib import parse as urls

import jinja2
import markupsafe

from handfast.rules.console import marks, moments

_TEMPLATES: Final = pathlib.Path(__file__).parent / "templates"
_WORDS: Final = "words.html"
_AROUND: Final = "base.html"
# Every macro of `words.html` that templates may use.
_MACROS: Final = ("state", "empty", "trouble", "command", "step", "pager", "column")


class Renderer:
    """The templates of the console."""

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self._mark = secrets.token_hex(16)
        self._places = re.compile(rf"{self._mark}\[([^\]]*)\]")
        self._environment = jinja2.Environment(
            # 1. escaped, and nothing left out
            # Read once: an upgrade in place brings templates that this code does not know.
            loader=jinja2.DictLoader({path.name: path.read_text("utf-8") for path in _TEMPLATES.glob("*.html")}),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        words = self._environment
        words.filters["shown"] = shown
        words.filters["spoken"] = spoken
        words.filters["flat"] = lambda text: marks.flat(str(text))
        words.globals.update(
            values or {},
            when=_when,
            within=moments.length,
            form_token=self._form_token,
            href=href,
        )
        module = cast("Any", self._environment.get_template(_WORDS).make_module({"when": _bare_when}))
        words.globals.update({name: getattr(module, name) for name in _MACROS})

    def page(self, template: str, values: Mapping[str, Any]) -> str:
        """A whole page."""
        return self._environment.get_template(template).render(values)

    def block(self, template: str, name: str, values: Mapping[str, Any]) -> str:
        """One block of a page, or of what is around every page (3)."""
        own = self._environment.get_template(template)
        found = own if name in own.blocks else self._environment.get_template(_AROUND)
        return "".join(found.blocks[name](found.new_context(dict(values)))).strip()

    def _form_token(self, path: str) -> markupsafe.Markup:
        # 4. the place, not the token
        place = markupsafe.escape(f"{self._mark}[{path}]")
        return markupsafe.Markup('<input type="hidden" name="form-token" value="{}">').format(place)

    def filled(self, html: str, token: Callable[[str], str]) -> str:
        """The HTML with the tokens of one session's forms (4)."""
        return self._places.sub(lambda match: token(match[1]), html) if self._mark in html else html


def shown(text: object) -> markupsafe.Markup:
    """A stranger's text (2)."""
    parts = [
        markupsafe.Markup('<span class="mark" title="a character that cannot be printed">{}</span>').format(piece.text)
        if piece.marked
        else markupsafe.escape(piece.text)
        for piece in marks.pieces(str(text))
    ]
    return markupsafe.Markup("<bdi>{}</bdi>").format(markupsafe.Markup("").join(parts))


def spoken(text: object) -> markupsafe.Markup:
    """A message as a sentence: with a capital, and what stands between backticks as code."""
    said = str(text)
    parts = (said[:1].upper() + said[1:]).split("`")
    return markupsafe.Markup("").join(
        markupsafe.Markup("<code>{}</code>").format(shown(part)) if number % 2 else shown(part)
        for number, part in enumerate(parts)
        if part
    )


def _instant(instant: datetime.datetime, now: datetime.datetime) -> markupsafe.Markup:
    return markupsafe.Markup('<time datetime="{}" title="{}" tabindex="0">{}</time>').format(
        instant.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        moments.exact(instant),
        moments.relative(instant, now),
    )


@jinja2.pass_context
def _when(context: jinja2.runtime.Context, instant: datetime.datetime | None) -> markupsafe.Markup:
    """An instant, relative to the page's `now`, with the exact one on focus; a dash for none."""
    return markupsafe.Markup("–") if instant is None else _instant(instant, context["now"])


def _bare_when(instant: datetime.datetime, now: datetime.datetime) -> markupsafe.Markup:
    return _instant(instant, now)


def href(path: str, query: Mapping[str, str] | None = None) -> str:
    """An address of ours; every part of a path is quoted by whoever makes it."""
    words = urls.urlencode({key: value for key, value in (query or {}).items() if value})
    return f"{path}?{words}" if words else path
