# SPDX-License-Identifier: Apache-2.0
"""`handfast ledger`: what is listed, found and told of a chain that was changed, and with which exit code."""

from __future__ import annotations

import dataclasses
import datetime
import json
from typing import Any

import pytest
import yaml

from handfast.api import status
from handfast.cli import main, output
from handfast.rules.ledger import entries
from handfast.rules.ledger import segments as ledger
from tests.unit.cli import reaching
from tests.unit.controllers.fake_api import FakeClient, failing
from tests.unit.rules.ledger_cases import NOW, chain, entry

FIRST = entry(1)


class Reached(reaching.Reached):
    """A ledger to read."""

    def __init__(self) -> None:
        self.client = FakeClient()

    def put(self, *segments: ledger.Segment) -> None:
        for number, segment in enumerate(segments):
            self.client.put("issuancelogs", f"{number}-{segment.name}", spec=ledger.spec_of(segment))


@pytest.fixture
def reached(monkeypatch):
    with reaching.reached(monkeypatch, Reached()) as made:
        yield made


def run(*arguments: Any) -> int:
    return output.run(main.command, ["ledger", *map(str, arguments)])


def listed(capsys: pytest.CaptureFixture[str], *arguments: Any) -> list[str]:
    assert run("list", "-o", "json", *arguments) == 0
    return [found["request"] for found in json.loads(capsys.readouterr().out)["entries"]]


def test_the_table(reached, capsys):
    reached.put(*reversed(chain()))
    assert run("list", "--node", "node-1") == 0
    out, err = capsys.readouterr()
    assert err == ""
    head, row = out.splitlines()
    assert head.split() == ["ISSUED", "UNTIL", "NAME", "SIGNER", "SERIAL", "REQUESTER", "RULE"]
    assert row.split() == [
        "2030-01-01T12:00:00Z",
        "2030-01-02T12:00:00Z",
        "system:node:node-1",
        FIRST.signer,
        FIRST.serial,
        "system:bootstrap:abcdef",
        "nodeclient",
    ]


def test_each_filter_leaves_only_what_matches(reached, capsys):
    old = ledger.extended(
        ledger.following(None), [entries.encode(entry(1, issued_at=NOW - datetime.timedelta(days=9999)))]
    )
    other = ledger.extended(old, [entries.encode(entry(2, signer="example.com/x", names=()))])
    reached.put(other)
    one, two = "node-csr-1", "node-csr-2"
    assert listed(capsys) == [one, two]
    assert listed(capsys, "--node", "node-1") == [one]
    assert listed(capsys, "--key", "SHA256:" + FIRST.key_fingerprint.upper()) == [one]
    assert listed(capsys, "--serial", "0x01") == [one]
    assert listed(capsys, "--signer", "kube-apiserver-client-kubelet") == [one]
    assert listed(capsys, "--signer", "example.com/x") == [two]
    assert listed(capsys, "--since", "2020-01-01T00:00:00Z") == [two]
    assert listed(capsys, "--since", "2020-01-01") == [two]
    assert listed(capsys, "--since", "1000d") == [two]
    assert listed(capsys, "--since", "0") == [one, two]
    assert run("list", "--since", "soon") == 2
    assert "soon" in capsys.readouterr().err
    assert run("list", "--signer", "example.com/x") == 0
    assert "example.com/x" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flag", "value", "hint"),
    [
        ("--serial", "zz", "give it in hex digits, 40 at most; 0x in front and colons between them are allowed"),
        ("--serial", "a" * 41, "give it in hex digits"),
        ("--key", "sha256:12", "give the SHA-256 of the public key: 64 hex digits"),
        ("--node", "Not_A_Node", "a name has lower-case letters, digits, '-' and '.'"),
        ("--since", "2026-13-01", "a date as in 2026-11-16 (UTC)"),
        ("--since", "yesterday", "give a duration as in 24h or 7d"),
    ],
)
def test_what_could_be_in_no_entry_is_wrong_usage(reached, capsys, flag, value, hint):
    assert run("list", flag, value) == 2
    error, next_step, reason = capsys.readouterr().err.splitlines()
    assert error.startswith(f'error: {flag}: "{value}" is n')
    assert next_step.startswith("hint: ")
    assert hint in next_step
    assert reason == "reason: Usage"


def test_nothing_is_noted(reached, capsys):
    assert run("list") == 0
    assert capsys.readouterr() == ("", "note: the ledger is empty\n")
    reached.put(*chain())
    assert run("list", "--node", "other") == 0
    assert capsys.readouterr() == ("", "note: no such certificate is in the ledger\n")


@pytest.mark.parametrize("which", ["node-csr-1", "01", FIRST.certificate, f"sha256:{FIRST.key_fingerprint}"])
def test_a_certificate_is_shown_by_any_of_its_names(reached, capsys, which):
    reached.put(*chain())
    assert run("show", which) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["names"] == "CN=system:node:node-1, O=system:nodes"
    assert lines["key"] == FIRST.key_fingerprint
    assert lines["authenticatedBy"] == "bootstrap-token"
    assert run("show", which, "-o", "yaml") == 0
    (found,) = yaml.safe_load(capsys.readouterr().out)["entries"]
    assert found["names"] == ["CN=system:node:node-1", "O=system:nodes"]
    assert ("tokenMadeBy" in lines, found["tokenMadeBy"]) == (False, "")


def test_who_made_the_token_is_shown_where_the_ledger_has_it(reached, capsys):
    reached.put(ledger.extended(ledger.following(None), [entries.encode(entry(1, token_maker="alice\nkey   forged"))]))
    assert run("show", "01") == 0
    assert r"tokenMadeBy       alice\u000akey   forged" in capsys.readouterr().out.splitlines()
    assert run("list", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["entries"][0]["tokenMadeBy"] == "alice\nkey   forged"


def test_entries_of_one_request_and_key_are_told(reached, capsys):
    """An auditor sees more certificates than were handed out, and is told why, and how to find the one that was."""
    opened = ledger.extended(ledger.following(None), [entries.encode(entry(number)) for number in (1, 2)])
    again = [entries.encode(entry(number, serial=f"{number + 7:032x}", certificate="f" * 64)) for number in (1, 2)]
    # Another key under the same name is another request, and the mesh has none.
    others = [
        entries.encode(entry(number, request=request)) for number, request in ((3, "node-csr-1"), (4, ""), (4, ""))
    ]
    reached.put(ledger.extended(opened, [*again, *others]))
    assert run("show", "node-csr-1") == 0
    out, note = capsys.readouterr()
    assert out.count("request ") == 3
    assert note.startswith(
        "note: more than one entry for one request and one key: node-csr-1. Two signers worked on it"
    )
    assert "A request hands out one certificate: `handfast csr explain NAME` shows which" in note
    assert run("show", "node-csr-1", "-o", "json") == 0
    assert capsys.readouterr().err == ""
    assert run("list") == 0
    assert "one key: node-csr-1 and 1 more. Two" in capsys.readouterr().err
    assert run("show", f"{8:032x}") == 0
    assert capsys.readouterr().err == ""


def test_show_what_is_not_there(reached, capsys):
    reached.put(*chain())
    assert run("show", "node-csr-99") == 1
    assert "reason: NotFound" in capsys.readouterr().err


def test_verify_a_good_one(reached, capsys):
    assert run("verify") == 0
    assert capsys.readouterr().out == "the ledger is empty\n"
    reached.put(*chain())
    assert run("verify") == 0
    head = chain()[2].last_link
    text = "the chain holds: 12 entries in 3 segments, from the beginning\n"
    assert capsys.readouterr().out == f"{text}head {head}\n"
    assert run("verify", "--head", head.upper(), "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"good": True, "segments": 3, "entries": 12, "begins": 1, "head": head, "findings": []}


def test_verify_counts_one_as_one(reached, capsys):
    reached.put(ledger.extended(ledger.following(None), [entries.encode(entry(1))]))
    assert run("verify") == 0
    assert capsys.readouterr().out.startswith("the chain holds: 1 entry in 1 segment, from the beginning\n")


def test_verify_after_retention(reached, capsys):
    first, *left = chain()
    reached.put(*left)
    head = left[-1].last_link
    assert run("verify") == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[1].split()[:3] == ["segment-0000000002", "-", "Shortened"]
    assert f"--head; the head now is {head}\nreason: LedgerShortened\n" in err
    for noted in (first.hash, head):
        assert run("verify", "--head", noted) == 0
        assert "from segment-0000000002 on; older ones were deleted" in capsys.readouterr().out


def test_verify_sees_that_the_first_was_removed_and_the_others_numbered_anew(reached, capsys):
    reached.put(*(dataclasses.replace(segment, sequence=segment.sequence - 1) for segment in chain()[1:]))
    assert run("verify") == 1
    out, err = capsys.readouterr()
    assert "from the beginning" not in out
    assert err.endswith("reason: LedgerChanged\n")


def test_a_name_has_no_lines_of_its_own(reached, capsys):
    forged = "CN=system:node:a\nrequester         kubernetes-admin\x1b[2J"
    reached.put(ledger.extended(ledger.following(None), [entries.encode(entry(1, names=(forged,)))]))
    assert run("show", "node-csr-1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 12
    assert [line.split()[1] for line in lines if line.startswith("requester ")] == ["system:bootstrap:abcdef"]
    assert "names             CN=system:node:a\\u000arequester         kubernetes-admin\\u001b[2J" in lines


def test_a_name_that_was_too_long_is_listed_by_its_digest(reached, capsys):
    reached.put(ledger.extended(ledger.following(None), [entries.encode(entry(1, names=("CN=" + "a" * 5000,)))]))
    assert run("list") == 0
    assert capsys.readouterr().out.splitlines()[1].split()[2].startswith("sha256:")


def test_verify_says_what_was_done(reached, capsys):
    first, second, third = chain()
    reached.put(first, dataclasses.replace(second, entries=(second.entries[0], *second.entries[2:])), third)
    assert run("verify") == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[1].split(maxsplit=3) == [
        "segment-0000000002",
        "2",
        "Removed",
        "entry 2 of segment-0000000002 was removed",
    ]
    assert "error: the ledger is not what was written: entry 2 of segment-0000000002 was removed" in err
    assert err.endswith("reason: LedgerChanged\n")
    assert run("verify", "-o", "json") == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["good"], found["findings"][0]["entry"]) == (False, 2)


def test_verify_with_a_noted_head(reached, capsys):
    first, second, third = chain()
    reached.put(first, second)
    assert run("verify", "--head", third.last_link) == 1
    assert "Rewritten" in capsys.readouterr().out
    assert run("verify", "--head", "abc") == 2
    assert '--head: "abc" is no hash' in capsys.readouterr().err
    assert run("verify", "--head", "x" * 64) == 2


def test_what_cannot_be_read_is_noted(reached, capsys):
    first, *_ = chain()
    reached.put(dataclasses.replace(first, entries=(*first.entries, "x 5 {}")))
    assert listed(capsys) == [f"node-csr-{number}" for number in range(1, 5)]
    assert run("list") == 0
    assert "1 entry cannot be read and is left out" in capsys.readouterr().err


@pytest.mark.parametrize(("reason", "expected"), [("NotFound", "NoLedger"), ("Forbidden", "Forbidden")])
def test_an_api_without_a_ledger(reached, capsys, reason, expected):
    reached.client.before = failing(status.StatusError(reason, "no"))
    assert run("list") == 1
    assert f"reason: {expected}" in capsys.readouterr().err
