# SPDX-License-Identifier: Apache-2.0
"""MachineConfigs as one: OpenShift's tables, Ignition's merge field by field, and what contradicts."""

from __future__ import annotations

import base64
import gzip
from typing import Any

import msgspec
import pytest

from handfast.rules.machine_config import host_paths, ignition, merging, names
from tests.unit.rules import machine_config_cases as cases

KARGS = ["testKarg", "kargFromIgnitionDowngrade"]
DEFAULTS: dict[str, Any] = {
    "baseOSExtensionsContainerImage": "",
    "extensions": [],
    "fips": False,
    "kernelArguments": [],
    "kernelType": "default",
    "osImageURL": "",
}


def merge(*documents):
    return msgspec.to_builtins(merging.merge(merging.read_all(documents)))


def config(*documents):
    return merge(*documents)["config"]


def both(one, other):
    """Two configurations merged, the second one later."""
    return config(cases.machine_config("10-one", one), cases.machine_config("20-other", other))


def refusal(*documents):
    return cases.refusal(merge, *documents)


def user(**fields):
    return cases.ignition(passwd={"users": [{"name": "core", **fields}]})


# --- TestMergeMachineConfigs ------------------------------------------------------------------------------------------


def test_merge_machine_configs_one_that_sets_fips_has_the_other_defaults():
    assert merge(cases.machine_config("fips", fips=True)) == {**DEFAULTS, "fips": True, "config": cases.ignition()}


def test_merge_machine_configs_each_field_can_be_set():
    assert merge(
        cases.machine_config("osimageurl", osImageURL="overriddenURL"),
        cases.machine_config("kargs", kernelArguments=KARGS),
        cases.machine_config("kerneltype", kernelType="realtime"),
        cases.machine_config("extension", extensions=["testExtensions"]),
        cases.machine_config("ssh", user(sshAuthorizedKeys=["5678"])),
        cases.machine_config("fips", fips=True),
        cases.machine_config("passwd", user(passwordHash="testpass")),
        cases.machine_config("ssh", user(sshAuthorizedKeys=["1234"])),
        cases.machine_config("v2", cases.ignition("2.2.0")),
    ) == {
        **DEFAULTS,
        "osImageURL": "overriddenURL",
        "kernelArguments": KARGS,
        "kernelType": "realtime",
        "extensions": ["testExtensions"],
        "fips": True,
        "config": user(sshAuthorizedKeys=["5678", "1234"], passwordHash="testpass"),
    }


def test_merge_machine_configs_a_custom_pool_wins_over_the_workers():
    packed = "data:;base64," + base64.b64encode(gzip.compress(b"old")).decode()
    old = {
        "path": "/etc/test2",
        "mode": 420,
        "contents": {"source": packed, "compression": "gzip"},
        "user": {"name": "root"},
    }
    merged = merge(
        cases.machine_config("ccc", cases.files(cases.file("/etc/test2", "data:,new")), role="infra"),
        cases.machine_config("aaa", cases.files(cases.file("/etc/test1", "data:,old"))),
        cases.machine_config("bbb", cases.files(cases.file("/etc/test1", "data:,new"))),
        cases.machine_config("ddd", cases.files(old)),
    )
    # The contents are new without the compression of the old ones; the owner is kept.
    assert merged == {
        **DEFAULTS,
        "config": cases.files(
            cases.file("/etc/test1", "data:,new", overwrite=True),
            cases.file("/etc/test2", "data:,new", overwrite=True, user={"name": "root"}),
        ),
    }


def test_set_default_file_overwrite():
    """TestSetDefaultFileOverwrite: what does not say so overwrites, and what says no does not."""
    document = cases.files(cases.file("/etc/testfileconfig1"), cases.file("/etc/testfileconfig2", overwrite=False))
    assert merge(cases.machine_config("overwrite", document)) == {
        **DEFAULTS,
        "config": cases.files(
            cases.file("/etc/testfileconfig1", overwrite=True), cases.file("/etc/testfileconfig2", overwrite=False)
        ),
    }


# --- Ignition, field by field -----------------------------------------------------------------------------------------


def test_nothing_is_an_empty_configuration():
    assert merge() == {**DEFAULTS, "config": cases.ignition()}
    assert config(cases.machine_config(config={})) == cases.ignition()


def test_a_file_without_contents_does_not_overwrite():
    assert config(cases.machine_config(config=cases.files({"path": "/etc/empty"}))) == cases.files(
        {"path": "/etc/empty"}
    )


def test_a_file_keeps_what_the_later_one_does_not_say():
    merged = both(
        cases.files(cases.file(mode=0o600, user={"id": 7}, append=[{"source": "data:,a"}])),
        cases.files({"path": "/etc/motd", "user": {"name": "core"}, "append": [{"source": "data:,a"}]}),
    )
    assert merged == cases.files(
        cases.file(
            mode=0o600, user={"name": "core"}, append=[{"source": "data:,a"}, {"source": "data:,a"}], overwrite=True
        )
    )


def test_contents_and_their_hash_are_one_thing():
    digest = "sha256-2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    old = {"source": "data:,hello", "verification": {"hash": digest}}
    assert both(cases.files(cases.file(contents=old)), cases.files(cases.file(source="data:,new"))) == cases.files(
        cases.file(source="data:,new", overwrite=True)
    )
    assert both(
        cases.files(cases.file(contents=old)), cases.files({"path": "/etc/motd", "contents": {"compression": ""}})
    ) == (cases.files(cases.file(contents=old, overwrite=True)))


def test_units_are_merged_by_name_and_their_drop_ins_too():
    merged = both(
        cases.units(
            {
                "name": "a.service",
                "contents": "old",
                "enabled": True,
                "dropins": [{"name": "1.conf", "contents": "old"}],
            },
            {"name": "b.service", "mask": True},
        ),
        cases.units(
            {"name": "c.service", "enabled": False},
            {
                "name": "a.service",
                "contents": "new",
                "dropins": [{"name": "2.conf", "contents": "new"}, {"name": "1.conf", "contents": "new"}],
            },
        ),
    )
    assert merged == cases.units(
        {
            "name": "a.service",
            "contents": "new",
            "enabled": True,
            "dropins": [{"name": "1.conf", "contents": "new"}, {"name": "2.conf", "contents": "new"}],
        },
        {"name": "b.service", "mask": True},
        {"name": "c.service", "enabled": False},
    )


@pytest.mark.parametrize(
    ("one", "other", "merged"),
    [
        (
            {"storage": {"disks": [{"device": "/dev/a", "partitions": [{"number": 1, "sizeMiB": 5}, {"label": "x"}]}]}},
            {
                "storage": {
                    "disks": [{"device": "/dev/a", "wipeTable": True, "partitions": [{"number": 1, "sizeMiB": 6}]}]
                }
            },
            {
                "storage": {
                    "disks": [
                        {
                            "device": "/dev/a",
                            "partitions": [{"number": 1, "sizeMiB": 6}, {"label": "x"}],
                            "wipeTable": True,
                        }
                    ]
                }
            },
        ),
        (
            {"storage": {"filesystems": [{"device": "/dev/a", "format": "xfs", "options": ["-f"]}]}},
            {"storage": {"filesystems": [{"device": "/dev/a", "format": "ext4", "options": ["-f"]}]}},
            {"storage": {"filesystems": [{"device": "/dev/a", "format": "ext4", "options": ["-f", "-f"]}]}},
        ),
        (
            {"storage": {"luks": [{"name": "v", "clevis": {"tpm2": True, "tang": [{"url": "http://a"}]}}]}},
            {
                "storage": {
                    "luks": [
                        {"name": "v", "clevis": {"threshold": 1, "tang": [{"url": "http://a", "thumbprint": "t"}]}}
                    ]
                }
            },
            {
                "storage": {
                    "luks": [
                        {
                            "name": "v",
                            "clevis": {"tpm2": True, "threshold": 1, "tang": [{"url": "http://a", "thumbprint": "t"}]},
                        }
                    ]
                }
            },
        ),
        (
            {"storage": {"raid": [{"name": "r", "level": "raid1", "devices": ["/dev/a"]}]}},
            {"storage": {"raid": [{"name": "r", "level": "raid0", "devices": ["/dev/a", "/dev/b"]}]}},
            {"storage": {"raid": [{"name": "r", "level": "raid0", "devices": ["/dev/a", "/dev/b"]}]}},
        ),
        (
            {"passwd": {"groups": [{"name": "g", "gid": 7}]}},
            {"passwd": {"groups": [{"name": "g", "gid": 8}, {"name": "h"}]}},
            {"passwd": {"groups": [{"name": "g", "gid": 8}, {"name": "h"}]}},
        ),
        (
            {"storage": {"directories": [{"path": "/d", "mode": 1}], "links": [{"path": "/l", "target": "a"}]}},
            {"storage": {"directories": [{"path": "/d", "mode": 2}], "links": [{"path": "/l", "target": "b"}]}},
            {"storage": {"directories": [{"path": "/d", "mode": 2}], "links": [{"path": "/l", "target": "b"}]}},
        ),
        (
            {"kernelArguments": {"shouldExist": ["a", "b"], "shouldNotExist": ["c"]}},
            {"kernelArguments": {"shouldExist": ["c", "a"], "shouldNotExist": ["b"]}},
            {"kernelArguments": {"shouldExist": ["a", "c"], "shouldNotExist": ["b"]}},
        ),
        (
            {"kernelArguments": {"shouldExist": ["a"]}},
            {"kernelArguments": {"shouldExist": ["b"]}},
            {"kernelArguments": {"shouldExist": ["a", "b"]}},
        ),
        (
            {
                "ignition": {
                    "version": "3.5.0",
                    "timeouts": {"httpTotal": 1},
                    "config": {"merge": [{"source": "https://a/"}]},
                }
            },
            {
                "ignition": {
                    "version": "3.5.0",
                    "timeouts": {"httpTotal": 2},
                    "config": {"merge": [{"source": "https://b/"}, {"source": "https://a/"}]},
                }
            },
            {
                "ignition": {
                    "version": "3.5.0",
                    "timeouts": {"httpTotal": 2},
                    "config": {"merge": [{"source": "https://a/"}, {"source": "https://b/"}]},
                }
            },
        ),
    ],
)
def test_the_other_sections_are_merged_by_their_keys(one, other, merged):
    assert both({**cases.ignition(), **one}, {**cases.ignition(), **other}) == {**cases.ignition(), **merged}


# --- the other fields of MachineConfigs -------------------------------------------------------------------------------


def test_the_order_is_by_name_and_workers_come_first():
    pieces = merging.read_all(
        cases.machine_config(name, role=role)
        for name, role in [("b", "infra"), ("c", "worker"), ("a", "infra"), ("d", "worker")]
    )
    assert [piece.name for piece in merging.ordered(pieces)] == ["c", "d", "a", "b"]


def test_a_generated_one_does_not_set_images():
    generated = cases.machine_config("99-generated", osImageURL="generated")
    generated["metadata"]["annotations"] = {names.RENDERED_BY: "1"}
    merged = merge(
        generated, cases.machine_config("10-own", osImageURL="own", baseOSExtensionsContainerImage="extensions")
    )
    assert (merged["osImageURL"], merged["baseOSExtensionsContainerImage"]) == ("own", "extensions")


def test_the_last_kernel_that_is_not_the_default_one_counts():
    merged = merge(
        cases.machine_config("1", kernelType="realtime"),
        cases.machine_config("2", kernelType="64k-pages"),
        cases.machine_config("3", kernelType="default", kernelArguments=None, extensions=None, fips=None),
    )
    assert merged["kernelType"] == "64k-pages"


def test_development_files_of_a_kernel_need_the_default_one():
    refused = refusal(
        cases.machine_config("1", kernelType="realtime"), cases.machine_config("2", extensions=["kernel-devel"])
    )
    assert refused.reason == merging.CONTRADICTION
    assert "kernel-devel is there only with the default kernel, and kernelType is realtime" in refused.message


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"kernelType": "fast"}, '.kernelType is "fast": there are default, realtime, 64k-pages'),
        ({"kernelArguments": "quiet"}, ".kernelArguments is 'quiet': expected array | null, got str"),
        ({"fips": "yes"}, ".fips is 'yes': expected bool | null, got str"),
        ({"color": 1}, ".color is no field: there are baseOSExtensionsContainerImage, config, extensions, fips"),
        ({"config": "x"}, ".config is no object"),
        ({"config": cases.ignition("2.4.0")}, '.config.ignition.version is "2.4.0": there are 3.0.0'),
    ],
)
def test_a_machine_config_that_cannot_be_read_is_named(spec, words):
    refused = refusal(cases.machine_config("70-bad", **spec))
    assert refused.reason == ignition.INVALID
    assert refused.message.startswith(f"MachineConfig 70-bad: spec{words}")


def test_a_machine_config_without_labels_or_spec_is_read():
    piece = merging.read({"metadata": {"name": "a"}})
    assert (piece.role, piece.config) == ("", ignition.EMPTY)


# --- contradictions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (
            cases.files(cases.file("/etc/app")),
            cases.files(cases.file("/etc/app/a/b")),
            'MachineConfig 10-one has the file "/etc/app", and MachineConfig 20-other has the file "/etc/app/a/b"',
        ),
        (
            cases.files(cases.file("/etc/app/a")),
            cases.ignition(storage={"links": [{"path": "/etc/app", "target": "/"}]}),
            'MachineConfig 20-other has the link "/etc/app", and MachineConfig 10-one has the file "/etc/app/a"',
        ),
        (
            cases.files(cases.file("/etc/app")),
            cases.ignition(storage={"directories": [{"path": "/etc/app"}]}),
            'MachineConfig 10-one has the file "/etc/app", and MachineConfig 20-other has the directory "/etc/app"',
        ),
        (
            cases.ignition(storage={"links": [{"path": "/etc/app", "target": "/"}]}),
            cases.files(cases.file("/etc/app")),
            'MachineConfig 20-other has the file "/etc/app", and MachineConfig 10-one has the link "/etc/app"',
        ),
        (
            cases.units({"name": "a.service", "contents": "[Unit]"}),
            cases.files(cases.file("/etc/systemd/system/a.service")),
            'MachineConfig 20-other has the file "/etc/systemd/system/a.service", and MachineConfig 10-one has the unit',
        ),
        (
            cases.units({"name": "a.service", "dropins": [{"name": "a.conf", "contents": "x"}]}),
            cases.files(cases.file("/etc/systemd/system/a.service.d")),
            "MachineConfig 20-other has the file",
        ),
        (
            cases.files(cases.file("/etc/kubernetes")),
            cases.ignition(),
            'MachineConfig 10-one has the file "/etc/kubernetes", and the machine-config server has the file',
        ),
        (
            cases.ignition(storage={"links": [{"path": "/etc/kubernetes/kubeconfig", "target": "/etc/shadow"}]}),
            cases.ignition(),
            'the machine-config server has the file "/etc/kubernetes/kubeconfig", and MachineConfig 10-one has the link',
        ),
    ],
)
def test_two_that_contradict_are_both_named(one, other, words):
    refused = refusal(cases.machine_config("20-other", other), cases.machine_config("10-one", one))
    assert refused.reason == merging.CONTRADICTION
    assert words in refused.message
    assert refused.message.endswith(": a machine cannot have both")


@pytest.mark.parametrize(
    "document",
    [
        cases.ignition(storage={"directories": [{"path": "/etc/app"}], "files": [cases.file("/etc/app/a")]}),
        cases.files(cases.file("/etc/app"), cases.file("/etc/app-2"), cases.file("/etc/app.d/a")),
        cases.files(cases.file(host_paths.KUBECONFIG)),
        cases.ignition(
            storage={"files": [cases.file("/etc/systemd/system/a.service.d/b.conf")]},
            systemd={
                "units": [{"name": "a.service", "enabled": True, "dropins": [{"name": "a.conf", "contents": ""}]}]
            },
        ),
    ],
)
def test_what_fits_together_does_not_contradict(document):
    assert config(cases.machine_config(config=document))["storage"]["files"]


def test_all_together_have_not_too_many_entries():
    half = ignition.MAX_ENTRIES // 2 + 1
    one, other = (cases.files(*({"path": f"/{name}/{row}"} for row in range(half))) for name in "ab")
    refused = refusal(cases.machine_config("1", one), cases.machine_config("2", other))
    assert refused.message == (
        "2 MachineConfigs together: 5,002 files, directories, links, units and drop-ins are too many: there may be 4,994"
    )


def test_all_together_unpack_not_too_much():
    packed = "data:;base64," + base64.b64encode(gzip.compress(bytes(ignition.FILE_LIMIT))).decode()
    documents = [
        cases.machine_config(
            f"{number:02}",
            cases.files({"path": f"/etc/{number}", "contents": {"source": packed, "compression": "gzip"}}),
        )
        for number in range(17)
    ]
    refused = refusal(*documents)
    assert refused.message.startswith(
        "MachineConfig 16: spec.config.storage.files[0].contents.source and those before it"
    )


# --- reading once -----------------------------------------------------------------------------------------------------


def stored(name, config, version="1"):
    document = cases.machine_config(name, config)
    document["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": version}
    return document


def test_an_object_that_has_not_changed_is_read_once():
    reader = merging.Reader()
    document = stored("1", cases.files(cases.file()))
    (first,) = reader.read_all([document])
    assert reader.read_all([document])[0] is first
    (changed,) = reader.read_all([stored("1", cases.files(cases.file(source="data:,new")), "2")])
    assert [file.source and file.source.url for file in changed.config.files] == ["data:,new"]


def test_an_object_without_a_version_is_read_each_time():
    reader = merging.Reader()
    document = cases.machine_config("1", cases.files(cases.file()))
    assert reader.read_all([document])[0] is not reader.read_all([document])[0]


def test_what_is_kept_counts_as_unpacked():
    packed = "data:;base64," + base64.b64encode(gzip.compress(bytes(ignition.FILE_LIMIT))).decode()
    documents = [
        stored(
            f"{number:02}",
            cases.files({"path": f"/etc/{number}", "contents": {"source": packed, "compression": "gzip"}}),
        )
        for number in range(17)
    ]
    reader = merging.Reader()
    assert reader.read_all(documents[:16])
    assert reader.read_all(documents[16:])
    assert "MachineConfig 16" in cases.refusal(reader.read_all, documents).message


def test_not_more_than_so_many_are_kept(monkeypatch):
    monkeypatch.setattr(merging, "KEPT", 2)
    reader = merging.Reader()
    documents = [stored(name, cases.ignition()) for name in "abc"]
    pieces = reader.read_all(documents)
    assert reader.read_all(documents[2:])[0] is pieces[2]
    assert reader.read_all(documents[:1])[0] is not pieces[0]
