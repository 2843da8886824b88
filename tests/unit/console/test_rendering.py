# SPDX-License-Identifier: Apache-2.0
"""Templates: strangers' texts stay texts, and a form's token is nobody's to place."""

from __future__ import annotations

import datetime
import functools

import jinja2
import pytest

from handfast.console import known, rendering
from handfast.console import page as page_module
from handfast.rules.console import questions

NOW = datetime.datetime(2026, 11, 18, 9, 0, tzinfo=datetime.UTC)
MARKUP = '"><script>alert(1)</script><img src=x onerror=alert(1)>'


@functools.cache
def shared() -> rendering.Renderer:
    return renderer()


def renderer() -> rendering.Renderer:
    return rendering.Renderer({"asset": lambda name: f"/static/{name}", "version": "0", "sign_out": "/sign-out"})


def made(text: str, **values: object) -> str:
    return shared()._environment.from_string(text).render({"now": NOW, **values})


def test_markup_in_a_name_stays_text():
    html = made(
        '{{ name }}|{{ name|shown }}|<i title="{{ name }}">{{ command(name) }}{{ state(name) }}{{ empty(name) }}',
        name=MARKUP,
    )
    assert "<script" not in html
    assert "<img" not in html
    assert html.count("&lt;script&gt;") == 6


def test_what_cannot_be_printed_is_marked():
    html = made("{{ name|shown }}", name="node-\u202etxt")
    assert html == ('<bdi>node-<span class="mark" title="a character that cannot be printed">U+202E</span>txt</bdi>')


def test_a_message_is_a_sentence_with_its_commands_as_code():
    assert str(rendering.spoken("run `a <b>` there")) == (
        "<bdi>Run </bdi><code><bdi>a &lt;b&gt;</bdi></code><bdi> there</bdi>"
    )


def test_what_is_not_given_is_an_error():
    with pytest.raises(jinja2.UndefinedError):
        made("{{ nothing }}")


def test_nobody_can_write_the_place_of_a_token():
    one = renderer()
    page = one._environment.from_string('<form>{{ form_token("/a") }}{{ form_token("/b") }}</form>{{ name|shown }}')
    html = one.filled(page.render(name="[/a]"), lambda path: f"token-of-{path}")
    assert html.count('value="token-of-/a"') == 1
    assert html.count('value="token-of-/b"') == 1
    assert html.endswith("<bdi>[/a]</bdi>")
    # Another console has another place.
    assert one._mark != renderer()._mark


def test_an_instant_is_relative_with_the_exact_one_beside_it():
    html = made("{{ when(at) }}{{ when(none) }}", at=NOW + datetime.timedelta(hours=3), none=None)
    assert html == ('<time datetime="2026-11-18T12:00:00Z" title="2026-11-18 12:00:00 UTC" tabindex="0">in 3 h</time>–')


def test_a_state_is_word_sign_and_colour():
    assert made('{{ state("late") }}') == '<span class="tag warn"><span aria-hidden="true">▲</span> late</span>'
    assert 'class="tag dim"' in made('{{ state("something new", "why") }}')


@pytest.mark.parametrize(
    ("text", "said", "command"),
    [
        ("handfast check", "", "handfast check"),
        ("run handfast mesh install", "Run ", "handfast mesh install"),
        ("on the machine: handfast node status", "<bdi>On the machine</bdi>: ", "handfast node status"),
        ("start them again: kubectl rollout restart", "<bdi>Start them again</bdi>: ", "kubectl rollout restart"),
    ],
)
def test_a_next_step_has_its_command_as_one(text: str, said: str, command: str):
    # Spaces apart, which are no matter in HTML.
    shown = " ".join(made(f'{{{{ step("{text}") }}}}').split())
    assert shown == f'{said}<code class="command"><bdi>{command}</bdi></code>'


@pytest.mark.parametrize("way", list(known.Way))
def test_every_trouble_is_a_sentence(way: known.Way):
    trouble = known.Trouble(way=way, title="Nodes", message=MARKUP, since=NOW, commands=("kubectl create x",))
    html = made("{{ trouble(each, now) }}", each=trouble)
    assert ("Nodes" in html) == (way is not known.Way.STRANGER)
    assert "<script" not in html
    assert ("kubectl create x" in html) == (way is known.Way.FORBIDDEN)


def test_a_column_sorts_and_the_pager_goes_on():
    question = questions.read("/nodes", {"sort": "name", "filter": MARKUP})
    html = made('{{ column("name", "Node", question) }}{{ column("end", "End", question) }}', question=question)
    assert 'aria-sort="ascending"' in html
    assert "sort=-name" in html
    assert "<script" not in html


def test_a_block_is_made_by_itself_from_the_same_values():
    async def show(_known: known.Known, _question: questions.Question) -> dict[str, object]:
        return {}

    page = page_module.Page(path="/", name="Overview", title="Overview", template="overview.html", show=show)
    values = {"page": page, "pages": [page], "badges": {"/": page_module.Badge(3, urgent=True)}, "now": NOW}
    html = renderer().block("overview.html", "navigation", values)
    assert html.startswith('<nav id="navigation"')
    assert ">3</span>" in html


def test_an_address_is_made_of_words_that_are_there():
    assert rendering.href("/nodes", {"filter": "a b&c", "sort": ""}) == "/nodes?filter=a+b%26c"
    assert rendering.href("/nodes") == "/nodes"
