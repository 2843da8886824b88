# SPDX-License-Identifier: Apache-2.0
"""Which version a field came with: each row is there in its version, and lacking in the one before."""

from __future__ import annotations

import pytest

from handfast.rules.machine_config import since
from tests.unit.rules import machine_config_cases as cases

LUKS = {"name": "v", "device": "/dev/sda"}
HEADERS = [{"name": "A", "value": "b"}]


@pytest.mark.parametrize(
    ("version", "document", "field"),
    [
        ("3.1.0", {"ignition": {"proxy": {"httpProxy": "http://p"}}}, ".ignition.proxy"),
        (
            "3.1.0",
            {"ignition": {"config": {"merge": [{}, {"httpHeaders": HEADERS}]}}},
            ".ignition.config.merge[1].httpHeaders",
        ),
        (
            "3.1.0",
            {"ignition": {"config": {"replace": {"compression": "gzip"}}}},
            ".ignition.config.replace.compression",
        ),
        ("3.1.0", cases.files({"contents": {"httpHeaders": HEADERS}}), ".storage.files[0].contents.httpHeaders"),
        ("3.1.0", cases.files({"append": [{"httpHeaders": HEADERS}]}), ".storage.files[0].append[0].httpHeaders"),
        ("3.1.0", {"storage": {"filesystems": [{"mountOptions": ["ro"]}]}}, ".storage.filesystems[0].mountOptions"),
        ("3.2.0", {"storage": {"luks": [LUKS]}}, ".storage.luks"),
        (
            "3.2.0",
            {"storage": {"disks": [{"partitions": [{}, {"resize": True}]}]}},
            ".storage.disks[0].partitions[1].resize",
        ),
        ("3.2.0", {"passwd": {"users": [{"shouldExist": False}]}}, ".passwd.users[0].shouldExist"),
        ("3.2.0", {"passwd": {"groups": [{"shouldExist": False}]}}, ".passwd.groups[0].shouldExist"),
        ("3.3.0", {"kernelArguments": {"shouldNotExist": ["quiet"]}}, ".kernelArguments"),
        ("3.4.0", {"storage": {"directories": [{"mode": 0o1777}]}}, ".storage.directories[0].mode"),
        ("3.4.0", cases.files({"contents": {"source": "arn:aws:s3:::b/k"}}), ".storage.files[0].contents.source"),
        ("3.4.0", {"storage": {"luks": [{**LUKS, "discard": True}]}}, ".storage.luks[0].discard"),
        ("3.4.0", {"storage": {"luks": [{**LUKS, "openOptions": ["a"]}]}}, ".storage.luks[0].openOptions"),
        (
            "3.4.0",
            {"storage": {"luks": [{**LUKS, "clevis": {"tang": [{"advertisement": "{}"}]}}]}},
            ".storage.luks[0].clevis.tang[0].advertisement",
        ),
        ("3.5.0", {"storage": {"luks": [{**LUKS, "cex": {"enabled": True}}]}}, ".storage.luks[0].cex"),
    ],
)
def test_a_field_is_lacking_before_its_version(version, document, field):
    assert since.lacking(document, version) is None
    before = since.VERSIONS[since.VERSIONS.index(version) - 1]
    newer = since.lacking(document, before)
    assert newer is not None
    assert newer.field == field
    assert f"came with {version}: {before} lacks it" in newer.sentence


@pytest.mark.parametrize(
    "document",
    [
        {"kernelArguments": {}},
        {"kernelArguments": {"shouldExist": [], "shouldNotExist": None}},
        {"passwd": {"users": [{"shouldExist": True}]}},
        {"passwd": {"users": None}},
        {"storage": {"luks": [], "directories": [{"mode": 0o755}, {"mode": None}], "files": None}},
        {"storage": {"disks": [{"partitions": [{"resize": False}]}]}},
        {"ignition": {"proxy": {}, "config": {"merge": [{"compression": ""}]}}},
        {"ignition": {"config": None}, "storage": {"files": [{"contents": {"source": None}}]}},
    ],
)
def test_what_says_nothing_is_lacking_nowhere(document):
    assert since.lacking(document, "3.0.0") is None


def test_an_error_may_call_the_version_by_another_name():
    newer = since.lacking({"kernelArguments": {"shouldExist": ["a"]}}, "3.0.0", "2.2.0")
    assert newer is not None
    assert newer.sentence == "is a field that came with 3.3.0: 2.2.0 lacks it"
