# SPDX-License-Identifier: Apache-2.0
"""From a certificate one step each leads to its request, its rule, its token, and who made the token; what leads nowhere says why."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.api import signer_names
from handfast.rules.console import trails
from handfast.rules.ledger import entries
from handfast.rules.mesh import holders
from tests.unit.rules.console import ledgers


def steps(entry: entries.Entry, **facts: object) -> dict[str, tuple[str, str]]:
    known = trails.Facts(**facts)  # type: ignore[arg-type]
    return {step.label: (step.text, step.path) for step in trails.trail(entry, known)}


def test_a_certificate_by_a_token_leads_to_everything():
    found = steps(ledgers.entry("w1"), request_there=True, token_there=True, made_by="alice@example")
    assert found == {
        "request": ("csr-w1", "/requests/csr-w1"),
        "rule": ("NodeJoin", "/rules/NodeJoin"),
        "token": ("abcdef", "/tokens/abcdef"),
        "made by": ("alice@example", "/tokens?filter=alice%40example"),
    }


def test_what_is_gone_is_told_with_the_reason():
    request, _, token, maker = trails.trail(ledgers.entry("w1"), trails.Facts(request_there=False, token_there=False))
    assert (request.path, request.note) == ("", "it was deleted since: settled requests are, within a day")
    assert token.path == "/ledger?filter=abcdef"
    assert (maker.text, maker.note) == (
        "not known",
        "it is gone with the token: the entry is older than that note, or of another API server",
    )
    *_, maker = trails.trail(ledgers.entry("w1"), trails.Facts(token_there=True))
    assert maker.note.startswith("its Secret does not say")
    # The ledger has it, and leads to what else came by tokens of the same maker.
    *_, maker = trails.trail(ledgers.entry("w1"), trails.Facts(token_there=False, made_by="alice"))
    assert (maker.text, maker.path) == ("alice", "/ledger?filter=alice")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            {"authenticated_by": "x509", "token_id": "ff" * 32, "requester": "system:node:w/1"},
            {"x509": ("ff" * 32, f"/ledger?filter={'ff' * 32}"), "asked by": ("system:node:w/1", "/nodes/w%2F1")},
        ),
        (
            {"authenticated_by": "", "token_id": "", "requester": "<b>jane</b>"},
            {
                "credential": ("no id on record", ""),
                "asked by": ("<b>jane</b>", "/ledger?filter=%3Cb%3Ejane%3C%2Fb%3E"),
            },
        ),
        ({"rule": "", "request": ""}, {"rule": ("none on record", ""), "request": ("none on record", "")}),
        ({"rule": "MachineJoin: ns/m-1"}, {"rule": ("MachineJoin: ns/m-1", "/rules/MachineJoin")}),
        (
            {
                "signer": signer_names.MESH_IDENTITY,
                "request": holders.Holder(namespace="ns", pod="p", uid="1-2", node="w1").text,
            },
            {"workload": ("ns/p", "/mesh/workloads?filter=ns%2Fp")},
        ),
        ({"signer": signer_names.MESH_IDENTITY, "request": "a digest"}, {"workload": ("a digest", "")}),
    ],
)
def test_other_certificates_lead_to_what_they_came_by(more, expected):
    found = steps(ledgers.entry("w1", **more))
    assert {label: found[label] for label in expected} == expected


def test_a_renewed_certificate_leads_to_the_token_with_which_its_node_joined():
    more: dict[str, Any] = {"authenticated_by": "x509", "token_id": "ff" * 32, "requester": "system:node:w1"}
    found = steps(ledgers.entry("w1", **more), joined_with="abcdef", token_there=True, made_by="alice")
    assert found["joined with token"] == ("abcdef", "/tokens/abcdef")
    assert found["made by"] == ("alice", "/tokens?filter=alice")
    gone = steps(ledgers.entry("w1", **more), joined_with="abcdef", token_there=False)
    assert gone["joined with token"] == ("abcdef", "/ledger?filter=abcdef")
    assert "joined with token" not in steps(ledgers.entry("w1", **more))


def test_every_rule_that_entries_name_is_told():
    for rule in (
        entries.JOIN,
        entries.RENEWAL,
        entries.RECOVERY,
        entries.SERVING,
        entries.BY_HAND,
        "MeshCertify: issuer 1",
    ):
        assert trails.RULES[trails.name_of(rule)].sentence
