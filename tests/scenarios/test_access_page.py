# SPDX-License-Identifier: Apache-2.0
"""docs/access.md, followed to the letter: each command works as written and prints what the page says it prints.

It starts a control plane as the README says; blocks that would start another one, or need `jq`, are left out.
"""

from __future__ import annotations

import pathlib
import re

import pytest

from tests.interop import running
from tests.scenarios import test_readme, up_world

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "access.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEREDOC = re.compile(r"<<'?EOF'?$")
LEFT_OUT = (".venv/bin/handfast up", "jq ")

checkout = test_readme.checkout


def steps(page: str) -> list[test_readme.Step]:
    """The commands of every block, in order; a here-document belongs to its command."""
    found = []
    for block in BLOCK.findall(page):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, rest = part.partition("\n")
            if HEREDOC.search(command):
                document, end, rest = rest.partition("\nEOF\n")
                command += f"\n{document}{end}"
            if not command.startswith(LEFT_OUT):
                found.append(test_readme.Step(command, rest))
    return found


@pytest.mark.slow
@pytest.mark.kubectl
@pytest.mark.timeout(300)
def test_the_page_works_as_written(checkout):
    running.find_kubectl()
    commands = steps(PAGE.read_text())
    assert len(commands) > 20
    environment = test_readme.environment(checkout.parent)
    with up_world.Terminal(["make", "up"], environment, checkout) as terminal:
        terminal.shows(test_readme.READY)
        for step, printed in zip(commands, test_readme.second_terminal(checkout, commands), strict=True):
            assert test_readme.same(printed) == test_readme.same(step.printed), step.command
        terminal.interrupt()
        up_world.until(lambda: not (checkout / "handfast-data" / "endpoints.json").exists(), what="its end")
