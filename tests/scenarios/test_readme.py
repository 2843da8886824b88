# SPDX-License-Identifier: Apache-2.0
"""The README, followed to the letter: `make up` in one terminal, kubectl in another, Ctrl-C to stop.

Proves that what a newcomer is told to type works and prints what the README says it prints. Blocks under a comment
`tested: … terminal` are run unchanged, in a directory that looks like the checkout; only the ports are others, by the
documented environment variables. Installing is not tried: `make up` finds everything installed.
"""

from __future__ import annotations

import pathlib

import pytest

from tests import page_text
from tests.interop import running
from tests.page_facts import ROOT
from tests.scenarios import page_reader, up_world


@pytest.mark.slow
@pytest.mark.kubectl
@pytest.mark.timeout(300)
def test_the_readme_works_as_written(checkout: pathlib.Path) -> None:
    running.find_kubectl()
    readme = (ROOT / "README.md").read_text()
    (first,) = page_text.steps(readme, "first")
    second = list(page_text.steps(readme, "second"))
    assert first.command == "make up"
    assert any("kubectl" in step.command for step in second)
    data = checkout / "handfast-data"
    with page_reader.Reader(checkout, page_reader.on_free_ports(checkout.parent), to_the_letter=True) as reader:
        terminal = reader.start(first.command, page_reader.READY)
        terminal.shows("To stop it:")
        for step in second:
            reader.follow(step)
        assert (data / "endpoints.json").exists()
        terminal.interrupt()
        terminal.process.wait(30)
        up_world.until(lambda: not (data / "endpoints.json").exists(), what="its end")
    assert (data / "store.db").exists(), "the data stays"
