# SPDX-License-Identifier: Apache-2.0
"""What docs/reference/controllers.md says of each controller is shown by a scenario, and no controller is missing there.

Rows are compared with the names in the code. That the tests which they name are there is looked at here; what they show,
they show themselves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from handfast.controllers import names
from tests import test_docs
from tests.page_facts import ROOT

PAGE = (ROOT / "docs" / "reference" / "controllers.md").read_text()


@dataclass(frozen=True, slots=True)
class Claim:
    """A row: the controller, when it runs, what it does, and the tests that show it."""

    name: str
    runs: str
    says: str
    shown_by: tuple[str, ...]


def claims(content: str) -> list[Claim]:
    found = []
    for line in content.splitlines():
        if re.match(r"\| `[a-z-]+-controller` \|", line):
            name, _, runs, says, shown_by = (cell.strip(" `") for cell in line.strip("|").split("|"))
            tests = tuple(f"{path}::{test}" for path, test in test_docs.NAMED_TEST.findall(f"`{shown_by}`"))
            found.append(Claim(name, runs, says, tests))
    return found


def unshown(claim: Claim) -> list[str]:
    """What is wrong with a row."""
    wrong = [] if len(claim.says.split()) > 4 else ["it says hardly anything"]
    wrong += [] if claim.shown_by else ["no test shows it"]
    wrong += test_docs.named_tests_that_are_none("".join(f"`{test}`" for test in claim.shown_by))
    wrong += [f"no scenario: {test}" for test in claim.shown_by if not test.startswith("tests/scenarios/")]
    return wrong


def when(name: str) -> str:
    """How the page begins to say when it runs."""
    if name in names.OPT_IN:
        return "if named"
    return "with " if name in names.NEEDS else "always"


def test_every_controller_has_a_row_in_the_order_of_the_code() -> None:
    assert [claim.name for claim in claims(PAGE)] == list(names.NAMES)


@pytest.mark.parametrize("claim", claims(PAGE), ids=lambda claim: claim.name)
def test_what_the_page_says_of_a_controller_is_shown(claim: Claim) -> None:
    assert unshown(claim) == []


@pytest.mark.parametrize("claim", claims(PAGE), ids=lambda claim: claim.name)
def test_the_page_says_when_a_controller_runs(claim: Claim) -> None:
    assert claim.runs.startswith(when(claim.name))


@pytest.mark.parametrize("name", sorted(names.ALIASES))
def test_the_page_has_every_other_name_of_a_controller(name: str) -> None:
    assert f"| `{names.ALIASES[name]}` | `{name}` |" in PAGE


@pytest.mark.parametrize(
    ("says", "shown_by", "wrong"),
    [
        ("does something that is seen", "", "no test shows it"),
        ("does something that is seen", "`tests/scenarios/test_node_lifecycle.py::test_gone`", "test_gone"),
        ("does something that is seen", "`tests/test_docs.py::test_there_are_pages`", "no scenario"),
        ("cleans", "`tests/scenarios/test_node_lifecycle.py::test_a_silent_node`", "hardly anything"),
    ],
)
def test_a_claim_that_nothing_shows_is_seen(says: str, shown_by: str, wrong: str) -> None:
    [claim] = claims(f"| `some-controller` | | always | {says} | {shown_by} |\n")
    [found] = unshown(claim)
    assert wrong in found
