# SPDX-License-Identifier: Apache-2.0
"""What the Secrets of machines and pools say, and what they never hold."""

from __future__ import annotations

import base64
import datetime
import json
from typing import Any

import pytest

from handfast import errors
from handfast.rules.machine_config import ignition_secrets
from handfast.rules.machines import inventory

NOW = datetime.datetime(2026, 11, 17, 12, tzinfo=datetime.UTC)
MACHINE = inventory.Machine(group=inventory.OPENSHIFT, namespace="openshift-machine-api", name="w1", uid="uid-1")
TEXT = ignition_secrets.generate(lambda count: bytes(range(count)))


def changed(document: dict[str, Any], **data: str) -> dict[str, Any]:
    return {**document, "data": {**document["data"], **data}}


def test_a_text_is_made_of_32_random_octets():
    assert TEXT == "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"


def test_a_secret_holds_the_digest_and_never_the_text():
    for document in (
        ignition_secrets.for_machine(MACHINE, "worker", TEXT),
        ignition_secrets.for_pool("worker", TEXT),
        ignition_secrets.rotated(ignition_secrets.for_pool("worker", "before"), TEXT, NOW),
    ):
        written = json.dumps(document)
        assert TEXT not in written
        assert base64.b64encode(TEXT.encode()).decode() not in written
        assert document["data"]["sha256"] == base64.b64encode(ignition_secrets.digest(TEXT).encode()).decode()


def test_the_secret_of_a_machine_is_read_as_it_was_written():
    (entry,) = ignition_secrets.read(ignition_secrets.for_machine(MACHINE, "worker", TEXT))
    assert entry == ignition_secrets.Entry(
        digest=ignition_secrets.digest(TEXT),
        pool="worker",
        machine="openshift-machine-api/w1",
        machine_uid="uid-1",
        secret="ignition-machine-w1",
    )


def test_the_secret_of_a_pool_is_read_with_the_one_before():
    document = ignition_secrets.for_pool("worker", "before")
    (only,) = ignition_secrets.read(document)
    assert (only.pool, only.machine_uid, only.until) == ("worker", "", None)
    after = document | ignition_secrets.rotated(document, TEXT, NOW)
    current, before = ignition_secrets.read(after)
    assert (current.digest, current.until) == (ignition_secrets.digest(TEXT), None)
    assert (before.digest, before.until) == (ignition_secrets.digest("before"), NOW)


@pytest.mark.parametrize("scope", ["", "worker"])
def test_what_is_not_labelled_is_no_secret_of_ours(scope):
    document = ignition_secrets.for_pool("worker", TEXT)
    document["metadata"]["labels"] = {ignition_secrets.LABEL: scope}
    assert ignition_secrets.read(document) == ()


def test_a_secret_under_another_name_is_none():
    for document in (
        ignition_secrets.for_pool("worker", TEXT),
        ignition_secrets.for_machine(MACHINE, "worker", TEXT),
    ):
        document["metadata"]["name"] = "ignition-pool-master"
        assert ignition_secrets.read(document) == ()


def test_a_machines_secret_without_a_uid_is_nobodys():
    document = ignition_secrets.for_machine(MACHINE, "worker", TEXT)
    del document["metadata"]["annotations"][ignition_secrets.MACHINE_UID]
    assert ignition_secrets.read(document) == ()


@pytest.mark.parametrize("value", ["", "!", base64.b64encode(b"short").decode(), base64.b64encode(b"\xff").decode()])
def test_a_digest_that_is_none_counts_for_nobody(value):
    assert ignition_secrets.read(changed(ignition_secrets.for_pool("worker", TEXT), sha256=value)) == ()


def test_a_pool_has_to_be_named():
    document = ignition_secrets.for_pool("worker", TEXT)
    document["metadata"]["annotations"] = {}
    assert ignition_secrets.read(document) == ()


def test_an_end_that_is_no_instant_has_come():
    document = ignition_secrets.for_pool("worker", "before")
    document |= ignition_secrets.rotated(document, TEXT, NOW)
    odd = changed(document, **{"previous-until": base64.b64encode(b"never").decode()})
    assert [entry.digest for entry in ignition_secrets.read(odd)] == [ignition_secrets.digest(TEXT)]


def test_a_name_that_no_secret_can_have_is_refused():
    with pytest.raises(errors.Refused, match="no Secret can be called 'ignition-pool-A'") as refused:
        ignition_secrets.for_pool("A", TEXT)
    assert refused.value.reason == "BadName"
