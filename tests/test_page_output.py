# SPDX-License-Identifier: Apache-2.0
"""What a page shows as the output of a command is what the code prints.

README.md and docs/access.md are followed to the letter in `tests/scenarios`; here are the other pages. The facts are the
page's, their form is the code's.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterator

import pytest

from handfast.bootstrap import first_objects, token_explanation, token_limits, tokens
from handfast.cli import ca as ca_command
from handfast.cli import main, node_status, output
from handfast.cli import token as token_command
from handfast.datadir import trust_overview
from tests import page_text, test_page_claims
from tests.page_facts import ROOT

# The pages that tests of their own follow to the letter, with all that is printed.
FOLLOWED = ("README.md", "access.md")


def lines_differ(shown: str, printed: str) -> list[tuple[str, str]]:
    """Where a page shows another line than is printed; `…` at the end of a line stands for the rest of it."""
    ours, theirs = shown.strip().splitlines(), printed.strip().splitlines()
    pairs = [*zip(ours, theirs, strict=False), *((line, "") for line in ours[len(theirs) :])]
    pairs += [("", line) for line in theirs[len(ours) :]]
    return [
        (line, other)
        for line, other in pairs
        if not (other.startswith(line[:-1]) if line.endswith("…") else line == other)
    ]


def node_status_of_a_page(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    begins, ends = "2026-11-16T02:29:05Z", "2027-11-16T02:29:05Z"
    certificate: dict[str, object] = {
        "subject": "CN=system:node:worker-1,O=system:nodes",
        "notBefore": begins,
        "notAfter": ends,
    }
    certificate |= {"inForce": True, "file": "/var/lib/kubelet/pki/kubelet-client-2026-11-16-02-34-05.pem"}
    agent: dict[str, object] = {
        "phase": "running",
        "pid": 2285,
        "endpoint": "https://0.0.0.0:10250",
        "rotation": True,
        "problems": {},
    }
    agent |= {"nextRenewal": "2027-10-01T08:52:20Z", "lastError": None, "pods": 0, "staticPods": ["default/etcd"]}
    facts: dict[str, object] = {
        "node": "worker-1",
        "certificate": certificate,
        "agent": agent,
        "refused": None,
        "unusable": [],
    }
    facts |= {"server": "https://192.0.2.1:6443", "clockDifferenceSeconds": 0.0, "serverTrouble": None}
    monkeypatch.setattr(node_status, "look", lambda *_, **__: facts)
    assert output.run(main.command, ["node", "status"]) == 0
    return capsys.readouterr().out


def token_explained_of_a_page(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    until = datetime.datetime(2026, 11, 16, 1, 58, 34, tzinfo=datetime.UTC)
    made = tokens.Token("5mm6n4", "0123456789abcdef")
    stored = first_objects.first_token(made, until)
    wanted = token_limits.Limits(max_uses=1, nodes=("worker-1",))
    stored["metadata"] |= {"annotations": token_limits.as_annotations(wanted)}
    explained = token_explanation.explain(
        made.id, stored, until - datetime.timedelta(minutes=59), ahead=datetime.timedelta()
    )

    async def explain(*_: object) -> tuple[object, token_explanation.Explanation]:
        return stored, explained

    monkeypatch.setattr(token_command, "_explain", explain)
    assert output.run(main.command, ["token", "explain", made.id, "--kubeconfig", "/dev/null"]) == 0
    return capsys.readouterr().out


def ca_shown_of_a_page(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    ends = datetime.datetime(2036, 11, 13, 2, 25, 40, tzinfo=datetime.UTC)
    anchor = trust_overview.Anchor(
        fingerprint="1b9e038a5216ff04" + "0" * 48,
        name="handfast-ca",
        not_before=ends - datetime.timedelta(days=3650),
        not_after=ends,
        signs=True,
        unexpired=42,
    )
    found = trust_overview.Overview(anchors=(anchor,), keys=(("ITieZA_8q00vga6I", True),), rotations=())
    monkeypatch.setattr(trust_overview, "of", lambda *_: found)
    monkeypatch.setattr(ca_command, "_owned", lambda _: contextlib.nullcontext(enter_result=False))
    assert output.run(main.command, ["ca", "show"]) == 0
    return capsys.readouterr().out


Printed = Callable[[pytest.MonkeyPatch, pytest.CaptureFixture[str]], str]
# What the code prints for the commands of the pages that nobody follows.
PRINTED: dict[str, Printed] = {
    "handfast node status": node_status_of_a_page,
    "handfast token explain 5mm6n4": token_explained_of_a_page,
    "handfast ca show": ca_shown_of_a_page,
}
# Those that are compared where there is a world for them.
ELSEWHERE = {"handfast csr explain csr-7hqzk": "tests/unit/cli/test_csr.py::test_the_page_shows_what_is_printed"}
# Commands whose output is a command itself.
PRINTS_A_COMMAND = ("handfast token create --print-join-command",)


def shown_steps() -> Iterator[page_text.Step]:
    """The steps with output, of pages that no test follows to the letter."""
    for page in test_page_claims.PAGES:
        if page.name not in FOLLOWED:
            yield from (step for step in page_text.steps(page.read_text()) if step.printed.strip())


@pytest.mark.parametrize("step", tuple(shown_steps()), ids=lambda step: step.command)
def test_what_a_page_shows_is_what_is_printed(
    step: page_text.Step, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if step.command.startswith(PRINTS_A_COMMAND):
        assert step.printed.startswith("handfast ")
        assert test_page_claims.misread_lines(f"```console\n$ {step.printed}```\n") == []
        return
    if step.command in ELSEWHERE:
        file, _, name = ELSEWHERE[step.command].partition("::")
        assert f"def {name}(" in (ROOT / file).read_text()
        return
    assert step.command in PRINTED, "give it a row in PRINTED: what does the code print?"
    assert lines_differ(step.printed, PRINTED[step.command](monkeypatch, capsys)) == []


def test_other_output_is_seen() -> None:
    assert lines_differ("a\nb\n", "a\nb\n") == lines_differ("a …\n", "a b\n") == []
    assert lines_differ("a\n", "a\nb\n") == [("", "b")]
    assert lines_differ("a\nb\n", "a\n") == [("b", "")]
    assert lines_differ("b …\n", "a b\n") == [("b …", "a b")]
