# SPDX-License-Identifier: Apache-2.0
"""`handfast node list`: one table, what could not be read, and the forms for programs."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator

import pytest

from handfast.api import signer_names, status
from handfast.cli import main, output
from handfast.pki import names
from handfast.rules import user_names
from handfast.rules.ledger import entries, segments
from tests.unit.cli import reaching
from tests.unit.controllers.fake_api import FakeClient, failing


class Api(reaching.Reached, FakeClient):
    """An API with Nodes."""

    @property
    def client(self) -> Api:
        return self


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    with reaching.reached(monkeypatch, Api()) as there:
        yield there


def certify(there: Api, *nodes: str) -> None:
    """Have a certificate of each in the ledger, issued just now."""
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    lines = [
        entries.encode(
            entries.Entry(
                issued_at=now,
                not_after=now + datetime.timedelta(hours=24),
                signer=signer_names.KUBELET_CLIENT,
                requester="system:bootstrap:abcdef",
                authenticated_by="bootstrap-token",
                token_id="abcdef",
                key_fingerprint="ff" * 32,
                serial="1a",
                names=entries.names_of(user_names.node_subject(node), names.Sans()),
                rule=entries.JOIN,
                request="csr-1",
                certificate="00" * 32,
            )
        )
        for node in nodes
    ]
    segment = segments.extended(segments.following(None), lines)
    there.put("issuancelogs", segment.name, spec=segments.spec_of(segment))


def run(*arguments: str) -> int:
    return output.run(main.command, ["node", "list", *arguments])


def test_those_who_need_somebody_come_first(reached, capsys):
    reached.put("nodes", "w1")
    reached.put("nodes", "w2")
    certify(reached, "w1", "w2")
    reached.put("revocations", "node-w1", spec={"node": "w1", "reason": "stolen"})
    assert run() == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split("   ")[0] == "NODE"
    assert [line.split()[:2] for line in lines] == [["w2", "silent"], ["w1", "revoked"]]
    assert "token abcdef" in lines[0]
    assert "Revocation node-w1: stolen" in lines[1]


def test_programs_get_all_of_it(reached, capsys):
    reached.put("nodes", "w1")
    certify(reached, "w1")
    assert run("-o", "json") == 0
    (node,) = json.loads(capsys.readouterr().out)["nodes"]
    assert (node["node"], node["state"], node["cameBy"]) == ("w1", "silent", "token abcdef")
    assert run("-o", "name") == 0
    assert capsys.readouterr().out == "w1\n"
    assert run("-o", "wide") == 0
    assert "ff" * 32 in capsys.readouterr().out


def test_what_may_not_be_read_is_told_and_the_rest_is_shown(reached, capsys):
    reached.put("nodes", "w1")
    reached.before = failing(status.forbidden("leases", "", "", "not you"), plural="leases")
    assert run() == 0
    captured = capsys.readouterr()
    assert "w1" in captured.out
    assert "note: Leases could not be read" in captured.err
    reached.before = failing(status.forbidden("nodes", "", "", "not you"), plural="nodes")
    assert run() == 1
    reached.before = failing(status.StatusError("ServiceUnavailable", "come again"), plural="leases")
    assert run() != 0


def test_no_nodes_are_told_as_such(reached, capsys):
    assert run() == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "there are no nodes" in captured.err
