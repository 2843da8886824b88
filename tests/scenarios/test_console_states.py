# SPDX-License-Identifier: Apache-2.0
"""Pages in a real browser while something is in the way: rights that are missing, and an API server that hangs, turns requests down, fails, or has another time.

Each has its cause outside of the console. Every page says so in a sentence with a next step, is not blank, and can be read by everybody, on a phone and in the dark, too.
Behind it is a real control plane. That it is over is told by itself.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator

import pytest
from playwright import sync_api as playwright

from handfast.client import hearing
from handfast.console import known, looking
from handfast.console.pages import overview
from tests.scenarios import console_states, console_world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
expect = playwright.expect

PAGES = ("/", "/requests", "/tokens", "/nodes", "/machines", "/mesh", "/mesh/edges", "/ledger", "/check", "/store")
# What is spoiled, the sentence, and the next step.
SPOILED: dict[str, tuple[Callable[[console_states.Standing], None], str, str]] = {
    "hanging": (lambda made: made.relay.hang(), "The API server does not answer since", "handfast check"),
    "overloaded": (lambda made: made.relay.turn_down(429), "The API server turns requests down", "asked again"),
    "unavailable": (lambda made: made.relay.turn_down(503), "The API server turns requests down", "asked again"),
    "failing": (lambda made: made.relay.turn_down(500), "The API server turns requests down", "asked again"),
    "skewed": (
        lambda made: setattr(made.relay, "ahead", datetime.timedelta(seconds=210)),
        "Clocks differ: the server's is 3 min ahead",
        "Set both by NTP",
    ),
}
# Those whose looks are those of `overloaded`.
ALIKE = {"unavailable", "failing"}


@pytest.fixture(scope="module")
def standing(
    console: console_world.Console, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[console_states.Standing]:
    role = {"metadata": {"name": "some"}, "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["*"]}]}
    binding = {
        "metadata": {"name": "some"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "some"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": console_states.FEW}],
    }
    rights = "/apis/rbac.authorization.k8s.io/v1"
    for path, document in (("clusterroles", role), ("clusterrolebindings", binding)):
        code, answer = console.plane.call("POST", f"{rights}/{path}", document)
        assert code == 201, answer
    with pytest.MonkeyPatch.context() as patched:
        # What is noticed in ten seconds is noticed in one.
        patched.setattr(hearing, "_ASK_SECONDS", 0.5)
        patched.setattr(hearing, "_ANSWER_SECONDS", 2.0)
        patched.setattr(known, "_LOOK_SECONDS", 0.2)
        patched.setattr(looking, "_PAUSE_SECONDS", 5.0)
        with console_states.standing(console.plane, tmp_path_factory.mktemp("states")) as made:
            yield made
    for path in ("clusterrolebindings", "clusterroles"):
        assert console.plane.call("DELETE", f"{rights}/{path}/some")[0] == 200


@pytest.fixture
def spoiled(chromium: playwright.Browser, standing: console_states.Standing) -> Iterator[console_world.Viewer]:
    """Somebody in front of a console whose answers are spoiled."""
    made = console_world.Viewer(chromium, standing.spoiled)
    yield made
    made.close()


def look(viewer: console_world.Viewer, page: playwright.Page, name: str) -> None:
    """At the desk in both schemes and on a phone; the pictures are kept."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        viewer.picture(page, f"{name}-{scheme}")
        console_world.require_accessible(page)
    page.set_viewport_size(console_world.PHONE)
    viewer.picture(page, f"{name}-phone-dark")
    console_world.require_no_sideways_scroll(page)


def require_told(page: playwright.Page, path: str, sentence: str, step: str) -> None:
    """A page of a phone that is whole, and says what is in the way."""
    page.goto(path)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.locator("main")).to_contain_text(sentence)
    expect(page.locator("main")).to_contain_text(step)
    assert len(page.locator("main").inner_text()) > 200, path
    console_world.require_no_sideways_scroll(page)


@pytest.mark.parametrize("state", SPOILED)
def test_what_is_in_the_way_of_the_server_is_told_on_every_page(
    spoiled: console_world.Viewer, standing: console_states.Standing, state: str
):
    spoil, sentence, step = SPOILED[state]
    page = spoiled.page("/")
    page.locator("#live.on").wait_for()
    standing.do(lambda: spoil(standing))
    try:
        # Whoever has the page open is told.
        expect(page.locator("#banner")).to_contain_text(sentence, timeout=60_000)
        if state != "skewed":
            expect(page.locator("#live")).to_contain_text(re.compile(r"not live since \d\d:\d\d:\d\d UTC"))
        expect(page.locator("#banner")).to_contain_text(step)
        if state not in ALIKE:
            look(spoiled, page, f"state-{state}")
            # Of the time nothing is said but in the banner, which all pages have in common.
            for path in PAGES[:4] if state == "skewed" else PAGES:
                require_told(page, path, sentence, step)
        spoiled.picture(page, f"state-{state}")
    finally:
        standing.do(standing.relay.go_on)
    # It is over by itself.
    expect(page.locator("#banner")).not_to_contain_text(sentence, timeout=60_000)
    page.locator("#live.on").wait_for()


def test_what_may_not_be_read_is_named_on_every_page_with_what_would_allow_it(
    chromium: playwright.Browser, standing: console_states.Standing
):
    viewer = console_world.Viewer(chromium, standing.few_rights)
    try:
        page = viewer.page("/tokens")
        expect(page.locator("main")).to_contain_text("You may not read bootstrap tokens")
        page.locator("summary", has_text="binding").first.click()
        expect(page.locator("main")).to_contain_text(f"--user={console_states.FEW}")
        look(viewer, page, "state-forbidden")
        for path in PAGES:
            # A check has the words of the command.
            sentence = "is forbidden" if path == "/check" else "You may not"
            require_told(page, path, sentence, console_states.FEW)
        # What they may not do is not done, and says which right is missing.
        page.goto("/tokens/new")
        page.get_by_role("button", name="Create it").click()
        expect(page.get_by_role("alert")).to_contain_text("Not done")
        expect(page.locator("main")).to_contain_text(f"--user={console_states.FEW}")
        viewer.picture(page, "state-forbidden-action-phone")
        console_world.require_accessible(page)
        console_world.require_no_sideways_scroll(page)
    finally:
        viewer.close()


def test_a_page_that_fails_is_a_sentence_and_the_others_go_on(
    spoiled: console_world.Viewer, monkeypatch: pytest.MonkeyPatch
):
    def fail(_known: object) -> None:
        raise KeyError("a secret of the code")

    monkeypatch.setattr(overview, "judge", fail)
    page = spoiled.page("/")
    expect(page.get_by_role("heading", level=1)).to_have_text("This page could not be made")
    expect(page.locator("main")).to_contain_text("the log of the console has the details")
    assert "secret" not in page.content()
    look(spoiled, page, "state-500")
    page.goto("/nodes")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Nodes")
