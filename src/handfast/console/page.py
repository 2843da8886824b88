# SPDX-License-Identifier: Apache-2.0
"""What a page is made of: the types between the handler and the pages. How to write one is in `pages/__init__.py`. It does nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from handfast.console import known as known_module
from handfast.console import needs as needs_module
from handfast.rules.console import questions

Show = Callable[[known_module.Known, questions.Question], Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Badge:
    """The number beside a page's name: how many need somebody, and whether it is urgent."""

    count: int
    urgent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of an action: a sentence, and where to go on. `once` is shown on that page once, and is then gone: what was typed, say.

    `here`: the page is the answer to the form itself, and not one to go on to. That is for a secret: nothing keeps it meanwhile, and no
    browser keeps the answer to a POST for "back", as it may keep a page that it went to, whatever that page says of being kept.
    """

    sentence: str
    then: str
    done: bool = True
    once: Mapping[str, Any] | None = field(default=None, repr=False)
    here: bool = False


class Act(Protocol):
    """Does what a form asks for, as the operator. What it raises is shown, with its reason and the next step."""

    async def __call__(self, known: known_module.Known, form: Mapping[str, str]) -> Outcome: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One form: where it is sent, and what is done. A refusal is shown on `back`."""

    path: str
    act: Act
    back: str


def no_badge(_known: known_module.Known) -> Badge | None:
    """The badge of a page that has none."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page. A path that ends with `/*` is that of an object, whose name is `question.of`."""

    path: str
    # In the navigation; empty: it is not there.
    name: str = ""
    title: str
    template: str
    needs: tuple[needs_module.Need[Any], ...] = ()
    # Whether it shows what `handfast check` finds.
    facts: bool = False
    show: Show
    # The blocks of the template that are sent again when they change; each is one element whose id is the block's name.
    live: tuple[str, ...] = ()
    # Whether it has a block `rows`, which makes the rows of `range`.
    rows: bool = False
    badge: Callable[[known_module.Known], Badge | None] = no_badge
    actions: tuple[Action, ...] = ()
