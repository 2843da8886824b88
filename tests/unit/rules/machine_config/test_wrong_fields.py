# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a document, as a sentence: the place, the value where it may be shown, and what is allowed."""

from __future__ import annotations

import msgspec
import pytest

from handfast.rules.machine_config import ignition, wrong_fields
from tests.unit.rules import machine_config_cases as cases


def sentence(document):
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(document, ignition.Config)
    return wrong_fields.sentence(caught.value, document, ignition.Config, "it")


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (7, "it is 7: expected object, got int"),
        ({}, "it.ignition is missing"),
        (cases.ignition(storage=[]), "it.storage has another type: expected object | null, got array"),
        (
            cases.ignition(storage={"disks": [{"device": "/dev/a", "partitions": [{"Number": 1}]}]}),
            (
                "it.storage.disks[0].partitions[0].Number is no field: there are guid, label, number, resize, shouldExist, sizeMiB,"
                " startMiB, typeGuid, wipePartitionEntry, and number was perhaps meant"
            ),
        ),
        (
            cases.ignition(systemd={"units": [{"name": "a.service", "enable": True}]}),
            "it.systemd.units[0].enable is no field: there are name, contents, dropins, enabled, mask",
        ),
        (
            cases.files(cases.file(contents={"sauce": "data:,"})),
            "it.storage.files[0].contents.sauce is no field: there are compression, httpHeaders, source, verification",
        ),
        (
            cases.files(cases.file(overwrite="yes")),
            "it.storage.files[0].overwrite is 'yes': expected bool | null, got str",
        ),
        (
            cases.files(cases.file(overwrite="y" * 41)),
            "it.storage.files[0].overwrite has another type: expected bool | null, got str",
        ),
        (
            cases.ignition(passwd={"users": [{"name": "core", "passwordHash": 12345}]}),
            "it.passwd.users[0].passwordHash has another type: expected str | null, got int",
        ),
    ],
)
def test_a_sentence_has_the_place_and_what_is_allowed(document, text):
    assert sentence(document) == text
