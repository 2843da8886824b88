# SPDX-License-Identifier: Apache-2.0
"""What revoking a credential says: what was cut, who has the replacement, and who does not."""

from __future__ import annotations

import dataclasses
import json

import pytest

from handfast.cli import revoke_output
from handfast.client import machine_credentials as client_credentials
from handfast.rules.machine_config import credential_rollout, in_flight
from tests.unit.cli.test_rollout_output import HAS, SILENT, STOCK, WORKS, pool

CUT = client_credentials.Open(
    objects=("Secret n/a",),
    requests=tuple(f"csr-{number}" for number in range(12)),
    connections=3,
    watches=2,
    staying=("Secret n/own",),
)
WANTED = revoke_output.Wanted(
    kind="worker", everything=False, dry_run=False, after_rollout=False, wait=True, seconds=1, form="text"
)


def wanted(**fields):
    return dataclasses.replace(WANTED, **fields)


def shown(capsys, wanted_, **fields):
    revoke_output.show(wanted_, revoke_output.Outcome(**fields))
    return capsys.readouterr()


def test_what_was_cut_and_what_stays_is_told():
    text = revoke_output.cut_text("worker", CUT, dry_run=False)
    assert text.splitlines() == [
        "Secret n/a deleted",
        "3 open connections and 2 open watches of it are refused",
        f"12 open requests denied: {', '.join(CUT.requests[:10])}, …",
        "1 tokens of single machines stay good; --all revokes them, too: Secret n/own",
    ]


def test_a_dry_run_says_would():
    text = revoke_output.cut_text("worker", CUT, dry_run=True)
    assert "Secret n/a would be deleted" in text
    assert "would be refused" in text
    assert "would be denied" in text


def test_nothing_to_revoke_and_a_server_that_does_not_tell_are_said():
    nothing = client_credentials.Open(objects=(), requests=(), connections=None, watches=None)
    assert "there is no master credential to revoke" in revoke_output.cut_text("master", nothing, dry_run=False)
    silent = client_credentials.Open(objects=("ConfigMap a/b",), requests=(), connections=None, watches=None)
    assert "does not tell" in revoke_output.cut_text("master", silent, dry_run=False)


def test_a_dry_run_names_followers_those_who_cannot_and_machines_in_flight(capsys):
    flying = (in_flight.InFlight("Machine n/m", "its key was approved"),)
    text = shown(capsys, wanted(dry_run=True), cut=CUT, pools=(pool(WORKS, STOCK, SILENT),), flying=flying).out
    assert text.splitlines()[-5:] == [
        "1 of 3 machines of the pool worker would follow",
        "c of worker would not: NoAgent: it runs a kubelet",
        "d of worker would not: NodeSilent: it is not ready",
        "1 machines are in flight with this credential",
        "Machine n/m is in flight: its key was approved",
    ]


def test_a_dry_run_of_a_roll_out_names_whom_it_would_wait_for(capsys):
    text = shown(
        capsys, wanted(dry_run=True, after_rollout=True), cut=CUT, pools=(pool(STOCK, SILENT, paused=True),)
    ).out
    assert "the pool worker, which is paused would follow" in text
    assert text.splitlines()[-1] == "it would be cut only when these have the replacement, too: d"


def test_the_end_names_those_who_do_not_have_it(capsys):
    text = shown(capsys, WANTED, cut=CUT, pools=(pool(HAS, STOCK),)).out
    assert text.splitlines() == [
        "worker: 1 of 2 machines have the new credential",
        "c of worker does not have it: NoAgent: it runs a kubelet",
    ]


def test_without_pools_it_says_that_nothing_is_rolled_out(capsys):
    assert "nothing is rolled out" in shown(capsys, WANTED, cut=CUT).err
    nothing = client_credentials.Open(objects=(), requests=(), connections=None, watches=None)
    assert shown(capsys, WANTED, cut=nothing).err == ""
    assert shown(capsys, wanted(wait=False), cut=CUT).err == ""


def test_a_roll_out_says_what_it_did_or_what_comes(capsys):
    done = shown(capsys, wanted(after_rollout=True), pools=(pool(HAS),)).out
    assert done.splitlines()[0] == (
        "the worker credential was cut after its replacement had come to everyone with an agent"
    )
    asked = shown(capsys, wanted(after_rollout=True, wait=False), pools=(pool(HAS),)).out
    assert "is cut once everyone with an agent has the replacement" in asked
    assert shown(capsys, wanted(after_rollout=True), pools=(pool(SILENT),), over=False).out == ""


@pytest.mark.parametrize(
    ("fields", "pools", "phase", "says"),
    [
        (
            {},
            (pool(HAS, WORKS, SILENT),),
            "",
            "the old credential is cut, and not everyone has the replacement; behind: b",
        ),
        ({}, (pool(HAS, rendered=False),), "", "behind: the pool worker is not rendered with it"),
        ({"after_rollout": True}, (pool(SILENT),), credential_rollout.DISTRIBUTING, "is not cut yet, and not everyone"),
        ({"after_rollout": True}, (pool(SILENT),), credential_rollout.RETURNING, "the old credential is cut"),
    ],
)
def test_who_has_waited_for_too_long_is_told_who_is_behind(fields, pools, phase, says):
    error = revoke_output.incomplete(wanted(**fields), revoke_output.Outcome(pools=pools, phase=phase, over=False))
    assert says in error.message
    assert error.reason == "RolloutIncomplete"
    assert "handfast machine pools" in (error.hint or "")


def test_machines_read_all_of_it(capsys):
    flying = (in_flight.InFlight("Machine n/m", "its key was approved"),)
    text = shown(capsys, wanted(form="json"), cut=CUT, pools=(pool(HAS, STOCK),), flying=flying).out
    document = json.loads(text)
    assert document["objects"] == ["Secret n/a"]
    assert document["complete"] is True
    assert document["inFlight"] == [{"machine": "Machine n/m", "sentence": "its key was approved"}]
    (row,) = document["pools"]
    assert (row["name"], row["have"], row["machines"], row["credential"]) == ("worker", 1, 2, "service-account")
    assert row["behind"] == [{"node": "c", "rendering": "", "reason": "NoAgent", "message": "it runs a kubelet"}]
    rehearsed = json.loads(shown(capsys, wanted(form="json", dry_run=True), cut=CUT, pools=(pool(WORKS, STOCK),)).out)
    assert (rehearsed["complete"], rehearsed["pools"][0]["have"]) == (False, 1)
    assert "objects" not in json.loads(shown(capsys, wanted(form="json", after_rollout=True)).out)
