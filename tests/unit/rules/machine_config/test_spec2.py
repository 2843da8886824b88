# SPDX-License-Identifier: Apache-2.0
"""Specification 2: what is read of it, and what is written as it."""

from __future__ import annotations

import time

import pytest

from handfast.rules.machine_config import ignition, spec2
from tests.unit.rules import machine_config_cases as cases

FILE = {"filesystem": "root", "path": "/etc/testfileconfig", "mode": 420, "contents": {"source": "data:,helloworld"}}


def upgraded(document):
    return ignition.parse(spec2.upgraded(document, cases.WHERE), cases.WHERE).document()


def old(**sections):
    return cases.ignition("2.2.0", **sections)


# --- TestRemoveIgnDuplicateFilesAndUnits ------------------------------------------------------------------------------


def test_remove_ign_duplicate_files_and_units():
    new = {**FILE, "contents": {"source": "data:,new"}}
    document = {
        "storage": {"files": [{**FILE, "contents": {"source": "data:,old"}}, new]},
        "systemd": {
            "units": [
                {"name": "testUnit", "contents": "old", "dropins": [{"name": "one", "contents": "old"}]},
                {"name": "testUnit", "dropins": [{"name": "one", "contents": "new"}]},
                {"name": "testUnit", "contents": "new", "dropins": [{"name": "two", "contents": "new"}]},
            ]
        },
    }
    dropins = [{"name": "two", "contents": "new"}, {"name": "one", "contents": "new"}]
    assert spec2.deduplicated(document) == {
        "storage": {"files": [new]},
        "systemd": {"units": [{"name": "testUnit", "contents": "new", "dropins": dropins}]},
    }


def test_users_keep_the_keys_of_all_each_once():
    users = [
        {"name": "core", "sshAuthorizedKeys": ["a", "b"]},
        {"name": "other"},
        {"name": "core", "sshAuthorizedKeys": ["c", "a"]},
        {"name": "other"},
    ]
    assert spec2.deduplicated({"passwd": {"users": users}})["passwd"]["users"] == [
        {"name": "core", "sshAuthorizedKeys": ["c", "a", "b"]},
        {"name": "other"},
    ]


def test_units_without_drop_ins_get_none():
    units = [{"name": "a.service", "mask": True}, {"name": "a.service", "mask": False}]
    assert spec2.deduplicated({"systemd": {"units": units}})["systemd"]["units"] == [
        {"name": "a.service", "mask": False}
    ]


def test_time_is_in_proportion_to_the_rows():
    rows = [{"name": "a.service", "dropins": [{"name": f"{number}.conf"}]} for number in range(20_000)]
    begin = time.process_time()
    (unit,) = spec2.deduplicated({"systemd": {"units": rows}})["systemd"]["units"]
    assert len(unit["dropins"]) == 20_000
    assert time.process_time() - begin < 1


# --- up ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", spec2.READ)
def test_files_units_and_users_are_read(version):
    document = cases.ignition(
        version,
        storage={
            "filesystems": [{"name": "root", "path": "/"}],
            "files": [
                FILE,
                {**FILE, "path": "/etc/more", "append": True},
                {"filesystem": "root", "path": "/etc/empty"},
            ],
            "directories": [{"filesystem": "root", "path": "/d", "mode": 493}],
            "links": [{"filesystem": "root", "path": "/l", "target": "d"}],
        },
        systemd={
            "units": [
                {"name": "a.service", "enable": True},
                {"name": "b.service", "enable": True, "enabled": False},
                {"name": "c.service", "enabled": True},
                {"name": "d.service", "enable": False, "mask": True},
            ]
        },
        passwd={"users": [{"name": "core", "sshAuthorizedKeys": ["5678", "5678", "abc"]}]},
    )
    contents = {"source": "data:,helloworld"}
    assert upgraded(document) == cases.ignition(
        storage={
            "files": [
                {"path": "/etc/testfileconfig", "mode": 420, "contents": contents, "overwrite": True},
                {"path": "/etc/more", "mode": 420, "append": [contents], "overwrite": False},
                {"path": "/etc/empty", "contents": {"source": "data:,"}, "overwrite": True},
            ],
            "directories": [{"path": "/d", "mode": 493}],
            "links": [{"path": "/l", "target": "d"}],
        },
        systemd={
            "units": [
                {"name": "a.service", "enabled": True},
                {"name": "b.service", "enabled": False},
                {"name": "c.service", "enabled": True},
                {"name": "d.service", "mask": True},
            ]
        },
        passwd={"users": [{"name": "core", "sshAuthorizedKeys": ["5678", "abc"]}]},
    )


def test_other_configurations_are_read():
    document = old()
    document["ignition"] |= {
        "config": {"append": [{"source": "https://a/"}], "replace": {"source": "https://b/"}},
        "timeouts": {"httpTotal": 1},
    }
    assert upgraded(document)["ignition"] == {
        "version": "3.5.0",
        "config": {"merge": [{"source": "https://a/"}], "replace": {"source": "https://b/"}},
        "timeouts": {"httpTotal": 1},
    }


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (old(networkd={"units": []}), ".networkd is no field"),
        (old(storage={"disks": [{"device": "/dev/a"}]}), ".storage.disks of 2.2.0 is not converted: write it as 3.5.0"),
        (old(storage={"raid": [{"name": "a"}]}), ".storage.raid of 2.2.0 is not converted"),
        (old(storage={"filesystems": [{"name": "var"}]}), '.storage.filesystems[0] is not "root", the only one'),
        (old(storage={"files": [{**FILE, "filesystem": "var"}]}), '.storage.files[0].filesystem is not "root"'),
        (old(storage={"files": [{**FILE, "mode": 0o1777}]}), ".storage.files[0].mode is 1023"),
        (old(storage={"files": "x"}), ".storage.files is 'x'"),
        (old(storage={"files": [7]}), ".storage.files[0] is 7"),
        (old(storage={"files": [{**FILE, "contents": "x"}]}), ".storage.files[0].contents is 'x'"),
        (old(storage={"files": [{**FILE, "path": 7}]}), ".storage.files[0].path is 7"),
        (old(storage=7), ".storage is 7"),
        (old(systemd={"units": [7]}), ".systemd.units[0] is 7"),
        (old(systemd=7), ".systemd is 7"),
        (
            old(systemd={"units": [{"name": "a.service", "dropins": [{"name": {}}]}]}),
            ".systemd.units[0].dropins[0].name has",
        ),
        (
            old(passwd={"users": [{"name": "core", "sshAuthorizedKeys": [{}]}]}),
            ".passwd.users[0].sshAuthorizedKeys[0] has",
        ),
        (old(passwd={"users": [{"name": "core", "create": {}}]}), ".passwd.users[0].create is no field"),
        ({"ignition": {"version": "2.2.0", "config": 7}}, ".ignition.config is 7"),
    ],
)
def test_what_has_no_form_in_the_other_one_is_named(document, words):
    assert cases.refusal(upgraded, document).message.startswith(cases.WHERE + words)


@pytest.mark.parametrize(
    ("document", "is_one"),
    [
        (old(), True),
        (cases.ignition(), False),
        ({}, False),
        (7, False),
        ({"ignition": 7}, False),
        (cases.ignition("2.4.0"), False),
    ],
)
def test_a_configuration_says_that_it_is_of_specification_2(document, is_one):
    assert spec2.is_one(document) is is_one


# --- down -------------------------------------------------------------------------------------------------------------


def test_files_units_and_users_are_written():
    document = cases.ignition(
        storage={
            "files": [
                cases.file(overwrite=True, append=[{"source": "data:,a"}], user={"name": "core"}),
                {"path": "/etc/more", "append": [{"source": "data:,b"}]},
                {"path": "/etc/empty"},
            ],
            "directories": [{"path": "/d", "mode": 493}],
            "links": [{"path": "/l", "target": "d"}],
        },
        systemd={"units": [{"name": "a.service", "dropins": [{"name": "a.conf", "contents": "x"}]}]},
        passwd={"users": [{"name": "core", "shouldExist": True}]},
    )
    document["ignition"] |= {
        "config": {"merge": [{"source": "https://a/"}], "replace": {"source": "https://b/"}},
        "timeouts": {"httpTotal": 1},
    }
    root = {"filesystem": "root"}
    motd = {**root, "path": "/etc/motd", "mode": 420, "user": {"name": "core"}}
    written = spec2.downgraded(document)
    assert written == {
        "ignition": {
            "version": "2.2.0",
            "config": {"append": [{"source": "https://a/"}], "replace": {"source": "https://b/"}},
            "timeouts": {"httpTotal": 1},
        },
        "storage": {
            "files": [
                {**motd, "overwrite": True, "contents": {"source": "data:,hello"}},
                {**motd, "overwrite": False, "contents": {"source": "data:,a"}, "append": True},
                {**root, "path": "/etc/more", "overwrite": False, "contents": {"source": "data:,b"}, "append": True},
                {**root, "path": "/etc/empty", "overwrite": False, "contents": {}},
            ],
            "directories": [{**root, "path": "/d", "mode": 493}],
            "links": [{**root, "path": "/l", "target": "d"}],
        },
        "systemd": document["systemd"],
        "passwd": {"users": [{"name": "core"}]},
    }


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"storage": {"luks": [{"name": "v"}]}}, "storage.luks is a field that came with 3.2.0: 2.2.0 lacks it"),
        ({"storage": {"disks": [{"device": "/dev/a"}]}}, "storage.disks is not converted to 2.2.0"),
        ({"storage": {"filesystems": [{"device": "/dev/a"}]}}, "storage.filesystems is not converted to 2.2.0"),
        ({"storage": {"raid": [{"name": "r"}]}}, "storage.raid is not converted to 2.2.0"),
        ({"kernelArguments": {"shouldNotExist": ["a"]}}, "kernelArguments is a field that came with 3.3.0"),
        ({"passwd": {"groups": [{"name": "g", "shouldExist": False}]}}, "passwd.groups[0].shouldExist is false"),
    ],
)
def test_what_specification_2_lacks_is_named(sections, words):
    refused = cases.refusal(spec2.downgraded, cases.ignition(**sections))
    assert refused.reason == spec2.NOT_CONVERTED
    assert refused.message.startswith(words)
