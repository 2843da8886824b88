# SPDX-License-Identifier: Apache-2.0
"""What is shown of the roots of a mesh, and of a step of their rotation."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from click.testing import CliRunner

from handfast.cli import main, mesh_anchors, rotation_report
from handfast.rules import trust_rotation
from handfast.rules.mesh import trust_view
from tests.unit.rules.mesh import rotation_cases as cases


def seen(record: Any = None, **more: Any) -> trust_view.View:
    known = cases.known(cases.agent("shop/web-1", cases.OLD_ROOT), cases.stock("shop/old-1", cases.OLD_ROOT))
    view = trust_view.view(cases.OLD, record, known, cases.MESH, cases.NOW)
    return dataclasses.replace(view, **more)


def test_a_root_is_shown_with_its_numbers():
    text = mesh_anchors._text(seen())
    head, row, _, issuer = text.splitlines()
    assert head.split() == ["ROOT", "NAME", "UNTIL", "SIGNS", "AGENTS", "OTHER", "PODS", "CERTIFICATES"]
    assert row.startswith(cases.OLD_ROOT[:16])
    assert row.split()[-8:] == ["yes", "1", "of", "1", "1", "of", "1", "2"]
    assert issuer.startswith(f"Issuer {cases.OLD_SIGNER[:16]} signs until 2027-")


def test_what_is_odd_is_said():
    text = mesh_anchors._text(seen(cases.after(cases.Step.ADD, undone=True), unknown=3))
    assert "Certificates of issuers that are not known here: 3" in text
    assert "A rotation is being undone; next is drop: stop trusting the new root, which has signed nothing" in text
    assert "A rotation is under way; next is switch: " in mesh_anchors._text(seen(cases.after(cases.Step.ADD)))


def test_the_document_names_everybody():
    document = json.loads(json.dumps(mesh_anchors._document(seen(cases.record()))))
    (root,) = document["roots"]
    assert (root["sha256"], root["signs"]) == (cases.OLD_ROOT, True)
    assert (root["believedByAgents"], root["believedByOthers"]) == (["shop/web-1"], ["shop/old-1"])
    assert document["issuer"]["sha256"] == cases.OLD_SIGNER
    assert document["rotation"] == {
        "next": "add",
        "begun": False,
        "staying": cases.NEW_SIGNER,
        "leaving": cases.OLD_SIGNER,
        "undone": False,
    }
    assert mesh_anchors._document(seen())["rotation"] is None


def test_a_step_that_was_only_tried_says_so():
    wait = trust_rotation.Wait(sentence="somebody is behind")
    report = trust_rotation.Report(
        did=cases.Step.ADD, actions=("a",), next=cases.Step.SWITCH, waits=(wait,), tried=True
    )
    assert rotation_report.text(report, mesh_anchors._ABOUT).splitlines() == [
        "would be done: add (trust the new root beside the old one)",
        "  a",
        "next: switch (sign with the other issuer)",
        "  waits: somebody is behind",
    ]
    over = trust_rotation.Report(did=cases.Step.DROP, tried=True)
    assert rotation_report.text(over, mesh_anchors._ABOUT).endswith("the rotation would be over")
    (step,) = rotation_report.document("mesh-anchors", [report])["steps"]
    assert (step["dryRun"], step["did"]) == (True, "add")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--dry-run", "--all"), "--dry-run and --all do not go together"),
        (("--issuer-cert", "x"), "--trust-anchors is missing"),
    ],
)
def test_what_does_not_go_together_is_refused(words, text):
    done = CliRunner().invoke(main.command, ["mesh", "anchors", "rotate", *words])
    assert done.exit_code != 0
    assert text in str(done.exception) + done.output
