# SPDX-License-Identifier: Apache-2.0
"""Configurations of machines, with Hypothesis: contents survive their encoding, the order of a list is nobody's word, versions keep files."""

from __future__ import annotations

import gzip
import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from handfast import errors
from handfast.rules.machine_config import accepted, conversion, data_urls, ignition, merging, rendering, since, spec2
from tests.unit.rules import machine_config_cases as cases

LIMIT = 1 << 20
PATHS = st.sampled_from(["/etc/a", "/etc/b", "/etc/c.d/x", "/var/lib/y"])
FILES = st.builds(
    lambda path, data, mode, overwrite: (
        {"path": path, "contents": {"source": data_urls.encode(data)}}
        | ({} if mode is None else {"mode": mode})
        | ({} if overwrite is None else {"overwrite": overwrite})
    ),
    PATHS,
    st.binary(max_size=12),
    st.none() | st.integers(0, 0o777),
    st.none() | st.booleans(),
)
UNITS = st.builds(
    lambda name, enabled, contents: {"name": name, "enabled": enabled, "contents": contents},
    st.sampled_from(["a.service", "b.timer"]),
    st.booleans(),
    # Before the first bracket every text is one that Ignition reads.
    st.text(st.characters(exclude_characters="[", exclude_categories=["Cs"]), max_size=8),
)
USERS = st.builds(
    lambda name, keys: {"name": name, "sshAuthorizedKeys": keys},
    st.sampled_from(["core", "other"]),
    st.lists(st.sampled_from(["k1", "k2", "k3"]), max_size=3, unique=True),
)


def unique(rows, key):
    return st.lists(rows, max_size=3, unique_by=lambda row: row[key])


CONFIGS = st.builds(
    lambda version, files, units, users: cases.ignition(
        version, storage={"files": files}, systemd={"units": units}, passwd={"users": users}
    ),
    st.sampled_from(since.VERSIONS),
    unique(FILES, "path"),
    unique(UNITS, "name"),
    unique(USERS, "name"),
)
KEYS = [
    "config",
    "contents",
    "dropins",
    "files",
    "name",
    "passwd",
    "path",
    "source",
    "sshAuthorizedKeys",
    "storage",
    "systemd",
    "units",
    "users",
]
NAMED = st.dictionaries(
    st.sampled_from(["10", "20", "30", "40"]), st.tuples(CONFIGS, st.sampled_from(["worker", "infra"]))
)


def machine_configs(named) -> list[dict[str, Any]]:
    return [cases.machine_config(name, config, role=role) for name, (config, role) in named.items()]


@given(st.binary(max_size=300))
def test_contents_survive_their_encoding(data):
    source = data_urls.Source(url=data_urls.encode(data))
    data_urls.check(source, LIMIT, "it", data_urls.Budget())
    assert data_urls.decode(source, LIMIT, "it") == data


@given(st.binary(max_size=300))
def test_packed_contents_survive_too(data):
    source = data_urls.Source(compression="gzip", url=data_urls.encode(gzip.compress(data)))
    assert data_urls.decode(source, LIMIT, "it") == data


@given(st.text(max_size=40), st.sampled_from([None, "gzip"]))
def test_what_is_checked_can_be_decoded_and_what_is_refused_cannot(text, compression):
    source = data_urls.Source(compression=compression, url=f"data:{text}")
    outcomes = []
    for call in (data_urls.check, data_urls.decode):
        try:
            call(source, 8, "it", data_urls.Budget())
        except errors.Refused:
            outcomes.append("refused")
        else:
            outcomes.append("read")
    assert outcomes[0] == outcomes[1]


@given(NAMED, st.randoms())
def test_a_rendering_does_not_depend_on_the_order_of_the_list(named, random):
    documents = machine_configs(named)
    turned = documents[:]
    random.shuffle(turned)
    one, other = (rendering.render("worker", rows, cases.Credential(), "1") for rows in (documents, turned))
    assert one == other
    assert rendering.read(one).name == other["metadata"]["name"]
    assert json.loads(msgspec.json.encode(one)) == one


@given(NAMED)
def test_merging_what_was_merged_changes_nothing(named):
    merged = msgspec.to_builtins(merging.merge(merging.read_all(machine_configs(named))))
    again = [cases.machine_config(name, merged["config"]) for name in ("1", "2")]
    assert msgspec.to_builtins(merging.merge(merging.read_all(again)))["config"] == merged["config"]


@given(NAMED, st.sampled_from([spec2.VERSION, *since.VERSIONS]))
def test_every_version_has_the_same_files_units_and_users(named, version):
    config = merging.merge(merging.read_all(machine_configs(named))).config
    converted = conversion.convert(config.document(), version)
    assert converted["ignition"]["version"] == version
    if version == spec2.VERSION:
        converted = spec2.upgraded(converted, "it")
    read = ignition.parse(converted, "it")
    assert (read.files, read.units, read.passwd) == (config.files, config.units, config.passwd)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(KEYS),
                inner,
                max_size=4,
            )
        ),
        max_leaves=20,
    ),
    st.sampled_from(["2.2.0", "3.0.0", "3.5.0"]),
)
def test_whatever_it_is_it_is_read_or_refused(document, version):
    if isinstance(document, dict):
        document = {**document, "ignition": {"version": version}}
    message = ""
    try:
        merging.read(cases.machine_config("50-x", document))
    except errors.Refused as refused:
        message = refused.message
    assert not message or message.startswith("MachineConfig 50-x: spec.config")


@given(st.text(alphabet="application/vnd.coreos.ignition+json;version=3.0,2q*", max_size=60))
def test_every_accept_header_is_a_version_or_refused(header):
    for text in (header, f"application/vnd.coreos.ignition+json;version={header}"):
        try:
            outcome = accepted.version(text)
        except errors.Refused as refused:
            outcome = refused.reason
        assert outcome in (accepted.UNSUPPORTED, spec2.VERSION, *since.VERSIONS)
