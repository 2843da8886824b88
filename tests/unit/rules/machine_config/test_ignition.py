# SPDX-License-Identifier: Apache-2.0
"""A configuration is read or refused: each row of what is refused has what the user reads."""

from __future__ import annotations

import base64
import gzip
import hashlib

import pytest

from handfast.rules.machine_config import ignition
from tests.unit.rules import machine_config_cases as cases

CORE = {"name": "core", "sshAuthorizedKeys": ["5678", "abc"]}


def parse(document):
    return ignition.parse(document, cases.WHERE)


def sentence(document):
    refused = cases.refusal(parse, document)
    assert refused.reason == ignition.INVALID
    assert refused.message.startswith(cases.WHERE)
    return refused.message.removeprefix(cases.WHERE)


def packed(data):
    return "data:;base64," + base64.b64encode(gzip.compress(data)).decode()


# --- TestValidateIgnition, its steps in order -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "is_valid"),
    [
        pytest.param({}, True, id="an empty configuration is valid"),
        pytest.param({"passwd": {"users": [CORE]}}, False, id="one without a version is not"),
        pytest.param(
            cases.ignition(
                passwd={"users": [CORE]},
                storage={"files": [cases.file("/etc/testfileconfig", "data:,greatconfigstuff")]},
            ),
            True,
            id="one with a version, a user and a file is valid",
        ),
        pytest.param(cases.files(cases.file(mode=0o1777)), False, id="special bits in the mode of a file are not"),
        pytest.param("test", False, id="what is no configuration is not valid"),
    ],
)
def test_validate_ignition(document, is_valid):
    if is_valid:
        assert parse(document).version == "3.5.0"
    else:
        sentence(document)


# --- what is read -----------------------------------------------------------------------------------------------------


def test_a_configuration_is_read_and_given_back():
    document = cases.ignition(
        storage={
            "files": [
                cases.file(user={"name": "core"}, group={"id": 0}, overwrite=False, append=[{"source": "data:,more"}]),
                {"path": "/etc/empty"},
            ],
            "directories": [{"path": "/etc/d", "mode": 0o1755, "user": {"id": 7}}],
            "links": [{"path": "/etc/l", "target": "motd"}],
        },
        systemd={"units": [{"name": "a.service", "enabled": True, "dropins": [{"name": "10-a.conf", "contents": ""}]}]},
        passwd={"users": [CORE]},
        kernelArguments={"shouldExist": ["quiet"]},
    )
    config = parse(document)
    assert config.document() == document
    file, empty = config.files
    assert (file.path, file.mode, file.user, file.group, file.overwrite) == ("/etc/motd", 0o644, "core", 0, False)
    assert file.source is not None
    assert file.source.url == "data:,hello"
    assert file.source.hash is None
    assert [source.url for source in file.append] == ["data:,more"]
    assert (empty.source, empty.append, empty.user, empty.group) == (None, (), None, None)
    assert [directory.user for directory in config.directories] == [7]
    assert [link.target for link in config.links] == ["motd"]
    assert [unit.dropins[0].name for unit in config.units] == ["10-a.conf"]
    assert set(config.other) == {
        "storage.directories",
        "storage.links",
        "passwd.users",
        "kernelArguments.shouldExist",
    }


def test_an_empty_configuration_has_nothing():
    config = parse(cases.ignition(storage=None, systemd={"units": None}))
    assert (config.files, config.directories, config.links, config.units, config.other) == ((), (), (), (), {})


@pytest.mark.parametrize("version", ignition.VERSIONS)
def test_every_version_is_read_as_the_newest(version):
    config = parse(cases.files(cases.file(), version=version))
    assert config.version == "3.5.0"
    assert config.files[0].path == "/etc/motd"


def test_contents_and_secrets_are_not_printed():
    config = parse(
        cases.ignition(
            storage={"files": [cases.file(source="data:,secret")]},
            systemd={
                "units": [
                    {"name": "a.service", "contents": "secret", "dropins": [{"name": "a.conf", "contents": "secret"}]}
                ]
            },
            passwd={
                "users": [{"name": "core", "passwordHash": "secret"}],
                "groups": [{"name": "wheel", "passwordHash": "secret"}],
            },
        )
    )
    assert "core" in repr(config)
    assert "wheel" in repr(config)
    assert "secret" not in repr(config)
    assert "secret" not in repr(config.units[0].dropins)


# --- what is refused: the version and the fields ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([], " is no object: it is an Ignition configuration"),
        (None, " is no object: it is an Ignition configuration"),
        ({"storage": {}}, ".ignition.version is missing: there are 3.0.0, 3.1.0, 3.2.0, 3.3.0, 3.4.0, 3.5.0"),
        ({"ignition": "3.2.0"}, ".ignition.version is missing: there are 3.0.0"),
        (cases.ignition("3.9.0"), '.ignition.version is "3.9.0": there are 3.0.0'),
        (cases.ignition("4.0.0"), '.ignition.version is "4.0.0": there are 3.0.0'),
        ({"ignition": {"version": 3}}, '.ignition.version is "3": there are 3.0.0'),
        (
            cases.ignition(networkd={}),
            ".networkd is no field: there are ignition, kernelArguments, passwd, storage, systemd",
        ),
        (
            cases.files(cases.file(Mode=1)),
            (
                ".storage.files[0].Mode is no field: there are path, group, overwrite, user, append, contents, mode, and mode"
                " was perhaps meant"
            ),
        ),
        (cases.files({"mode": 1}), ".storage.files[0].path is missing"),
        (cases.files(cases.file(mode="0644")), ".storage.files[0].mode is '0644': expected int | null, got str"),
        (
            cases.ignition("3.2.0", kernelArguments={"shouldExist": ["quiet"]}),
            ".kernelArguments is a field that came with 3.3.0: 3.2.0 lacks it",
        ),
    ],
)
def test_versions_and_fields_are_known(document, words):
    assert sentence(document).startswith(words)


# --- paths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("../etc/passwd", "absolute"),
        ("etc/motd", "absolute"),
        ("", "absolute"),
        ("/etc/../../srv/authorized_keys", "segment"),
        ("/..", "segment"),
        ("/etc/./motd", "segment"),
        ("/etc//motd", "segment"),
        ("//etc/motd", "segment"),
        ("/etc/" + "a" * 256, "segment"),
        ("/etc/motd/", "end with /"),
        ("/", "end with /"),
        ("/etc/mo\0td", "NUL"),
        ("/a" * 2048, "4,095 bytes"),
        ("/é" * 1400, "4,095 bytes"),
        ("/etc/" + "a" * 90 + "é" * 83, "255 bytes"),
        ("/etc/\ud800", "Unicode"),
    ],
)
def test_a_path_that_escapes_is_refused(path, words):
    for document in (
        cases.files(cases.file(path)),
        cases.ignition(storage={"directories": [{"path": path}]}),
        cases.ignition(storage={"links": [{"path": path, "target": "/etc"}]}),
    ):
        text = sentence(document)
        assert "[0].path is " in text
        assert words in text
        assert len(text) < 300


@pytest.mark.parametrize("number", [-1, -5, 1 << 32, (1 << 32) - 1, 1 << 62])
def test_the_number_of_an_owner_is_one_that_the_kernel_has(number):
    text = sentence(cases.files(cases.file() | {"user": {"id": number}}))
    assert text == f".storage.files[0].user.id is {number}: it is from 0 to 4294967294"


@pytest.mark.parametrize("path", ["/etc/..motd", "/etc/.motd", "/etc/...", "/etc/a b", "/x", "/" + "a" * 255])
def test_a_path_with_dots_in_its_names_is_none_that_escapes(path):
    assert parse(cases.files(cases.file(path))).files[0].path == path


def test_a_path_is_there_once():
    assert '.storage has the path "/etc/motd" twice' in sentence(cases.files(cases.file(), cases.file()))
    both = cases.ignition(storage={"files": [cases.file()], "directories": [{"path": "/etc/motd"}]})
    assert '.storage has the path "/etc/motd" twice' in sentence(both)


def test_a_link_leads_somewhere():
    document = cases.ignition(storage={"links": [{"path": "/etc/l"}]})
    assert sentence(document) == '.storage.links[0].target is missing: the link "/etc/l" leads to something'


# --- modes, owners and contents ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o1000, 0o4755, 0o2755, -1, 644000])
def test_the_mode_of_a_file_has_no_special_bits(mode):
    assert f".storage.files[0].mode is {mode} ({mode:#o}): it is from 0 to 511 (0o777)" in sentence(
        cases.files(cases.file(mode=mode))
    )


def test_the_mode_of_a_directory_may_have_them():
    assert (
        parse(cases.ignition(storage={"directories": [{"path": "/d", "mode": 0o7777}]})).directories[0].mode == 0o7777
    )
    assert "to 4095 (0o7777)" in sentence(cases.ignition(storage={"directories": [{"path": "/d", "mode": 0o10000}]}))


@pytest.mark.parametrize("who", ["user", "group"])
def test_an_owner_has_one_name(who):
    text = sentence(cases.files(cases.file() | {who: {"id": 0, "name": "root"}}))
    assert text == f'.storage.files[0].{who} has the id 0 and the name "root": only one'


@pytest.mark.parametrize(
    ("contents", "words"),
    [
        ({"source": "data:hello"}, ".storage.files[0].contents.source is a data URL without a comma"),
        ({"source": "data:,%"}, ".storage.files[0].contents.source has a % without"),
        (
            {"source": "ftp://example.org/x"},
            '.storage.files[0].contents.source is "ftp://example.org/x": it begins with one of',
        ),
        (
            {"source": "data:,a", "compression": "xz"},
            '.storage.files[0].contents.compression is "xz": it is gzip or absent',
        ),
        ({"source": "data:,abc", "compression": "gzip"}, ".storage.files[0].contents.source is no gzip"),
        (
            {"verification": {"hash": "sha256-0"}},
            ".storage.files[0].contents.verification.hash is there without a source",
        ),
        (
            {"source": "data:,a", "verification": {"hash": "sha256-" + hashlib.sha256(b"b").hexdigest()}},
            ".storage.files[0].contents.source does not have the contents",
        ),
        (
            {"source": "data:,a", "httpHeaders": [{"name": "A", "value": "b"}]},
            ".storage.files[0].contents.httpHeaders are there, and the source begins with neither http: nor https:",
        ),
        (
            {"source": "https://example.org/", "httpHeaders": [{"name": ""}]},
            ".storage.files[0].contents.httpHeaders has one without a name",
        ),
        ({"source": "data:," + "a" * (ignition.FILE_LIMIT + 1)}, "has 4,194,305 bytes: a file may have 4,194,304"),
    ],
)
def test_contents_that_cannot_be_read_are_refused(contents, words):
    assert words in sentence(cases.files({"path": "/etc/motd", "contents": contents}))


def test_contents_that_are_appended_are_read_too():
    assert ".storage.files[0].append[1].source is a data URL" in sentence(
        cases.files({"path": "/etc/motd", "append": [{"source": "data:,a"}, {"source": "data:b"}]})
    )


def test_a_file_that_overwrites_has_contents():
    text = sentence(cases.files({"path": "/etc/motd", "overwrite": True}))
    assert text == '.storage.files[0].overwrite is true: then "/etc/motd" has contents.source'


@pytest.mark.parametrize(
    "url", ["https://example.org/a", "s3://bucket/a", "arn:aws:s3:::bucket/a", "tftp://h/a", "gs://b/a"]
)
def test_other_sources_are_kept(url):
    (file,) = parse(cases.files(cases.file(source=url))).files
    assert file.source is not None
    assert file.source.url == url
    assert not file.source.is_data


def test_a_bomb_is_not_unpacked():
    bomb = packed(bytes(200 << 20))
    assert len(bomb) < 300_000
    contents = {"source": bomb, "compression": "gzip"}
    text = sentence(cases.files({"path": "/etc/motd", "contents": contents}))
    assert text == (
        ".storage.files[0].contents.source is unpacked larger than a file may be, which is 4,194,304 bytes: "
        'the file is "/etc/motd"'
    )


def test_many_small_bombs_are_not_unpacked_either():
    contents = {"source": packed(bytes(ignition.FILE_LIMIT)), "compression": "gzip"}
    rows = [{"path": f"/etc/{number}", "contents": contents} for number in range(17)]
    assert parse(cases.files(*rows[:16])).files
    assert (
        "storage.files[16].contents.source and those before it are unpacked larger than 67,108,864 bytes"
        in sentence(cases.files(*rows))
    )


def test_there_are_not_too_many_entries():
    rows = [{"path": f"/etc/{number}"} for number in range(ignition.MAX_ENTRIES + 1)]
    assert (
        sentence(cases.files(*rows))
        == ": 5,001 files, directories, links, units and drop-ins are too many: there may be 5,000"
    )


# --- units ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/x.service",
        "a/b.service",
        "a.conf",
        "service",
        ".service/..",
        "a b.service",
        "a\0.service",
        "",
        "a" * 256 + ".service",
    ],
)
def test_a_unit_is_named_as_systemd_has_it(name):
    assert ".systemd.units[0].name is " in sentence(cases.units({"name": name, "enabled": True}))


@pytest.mark.parametrize(
    "name", ["../x.conf", "a/b.conf", "a.service", ".conf", ".a.conf", "a\0.conf", "a" * 255 + ".conf"]
)
def test_a_drop_in_is_named_as_systemd_has_it(name):
    unit = {"name": "a.service", "dropins": [{"name": name, "contents": "[Unit]"}]}
    assert ".systemd.units[0].dropins[0].name is " in sentence(cases.units(unit))


def test_a_unit_without_contents_says_something_else():
    text = sentence(cases.units({"name": "app.service"}))
    assert text == '.systemd.units[0] is "app.service" without contents: it has contents, dropins, enabled or mask'


@pytest.mark.parametrize(
    "fields",
    [{"enabled": True}, {"enabled": False}, {"mask": True}, {"contents": ""}, {"dropins": [{"name": "a.conf"}]}],
)
def test_a_unit_that_the_system_brings_needs_no_contents(fields):
    assert parse(cases.units({"name": "getty@tty1.service", **fields})).units[0].name == "getty@tty1.service"


def test_units_and_drop_ins_are_there_once():
    unit = {"name": "a.service", "mask": True}
    assert '.systemd.units has the name "a.service" twice' in sentence(cases.units(unit, unit))
    twice = {"name": "a.service", "dropins": [{"name": "a.conf"}, {"name": "a.conf"}]}
    assert '.systemd.units[0].dropins has the name "a.conf" twice' in sentence(cases.units(twice))


# --- other configurations ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "words"),
    [
        (
            {"config": {"merge": [{"source": "https://example.org/a"}, {}]}},
            ".ignition.config.merge[1].source is missing",
        ),
        ({"config": {"replace": {"source": ""}}}, ".ignition.config.replace.source is missing"),
        (
            {"security": {"tls": {"certificateAuthorities": [{"source": "data:x"}]}}},
            ".ignition.security.tls.certificateAuthorities[0].source is a data URL",
        ),
    ],
)
def test_other_configurations_have_a_source(section, words):
    assert sentence({"ignition": {"version": "3.5.0", **section}}).startswith(words)


def test_the_text_of_a_unit_is_one_that_ignition_reads():
    broken = {"name": "a.service", "contents": "[Unit]\nDescription"}
    assert sentence(cases.units(broken)) == (
        ".systemd.units[0].contents cannot be read by Ignition: line 2 has no equals sign"
    )
    dropin = {"name": "a.service", "dropins": [{"name": "a.conf", "contents": "[Unit"}]}
    assert ".systemd.units[0].dropins[0].contents cannot be read" in sentence(cases.units(dropin))
