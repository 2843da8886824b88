# SPDX-License-Identifier: Apache-2.0
"""The packaged schema: rows are read as the data file means them, and refer to nothing that is not there."""

from __future__ import annotations

import pytest

from handfast import errors
from handfast.api.schema import schema


def test_field_of_a_list_map_has_its_keys_and_merge_strategy():
    containers = schema.field_at("core.v1.PodSpec", "containers")
    assert containers is not None
    assert (containers.number, containers.type, containers.repeated, containers.required) == (
        2,
        "core.v1.Container",
        True,
        True,
    )
    assert (containers.list_type, containers.keys) == ("map", ("name",))
    assert (containers.patch, containers.patch_key) == ("merge", "name")


def test_several_strategies_stand_in_one_word():
    volumes = schema.field_at("core.v1.PodSpec", "volumes")
    assert volumes is not None
    assert volumes.patch == "merge,retainKeys"


def test_inline_messages_are_flat_in_json_and_nested_on_the_wire():
    volume = schema.message("core.v1.Volume")
    assert volume.fields["emptyDir"].type == "core.v1.EmptyDirVolumeSource"
    assert "volumeSource" not in volume.fields
    assert volume.wire[2].inline
    assert volume.wire[2].type == "core.v1.VolumeSource"


def test_options_that_are_absent_read_as_empty():
    name = schema.field_at("meta.v1.ObjectMeta", "name")
    assert name is not None
    assert (name.list_type, name.keys, name.map_type, name.patch, name.patch_key) == ("", (), "", "", "")
    assert not (name.repeated)
    assert not (name.is_map)
    assert not (name.inline)
    assert not (name.required)
    assert not (name.pointer)
    assert name.proto_name == "name"


def test_maps_pointers_and_other_proto_names():
    data = schema.field_at("core.v1.ConfigMap", "data")
    grace = schema.field_at("meta.v1.ObjectMeta", "deletionGracePeriodSeconds")
    reference = schema.field_at("apiextensions.v1.JSONSchemaProps", "$ref")
    assert data is not None
    assert grace is not None
    assert reference is not None
    assert data.is_map
    assert grace.pointer
    assert reference.proto_name == "ref"


def test_atomic_messages_and_json_forms():
    assert schema.message("meta.v1.LabelSelector").atomic
    assert not schema.message("core.v1.Pod").atomic
    assert schema.message("meta.v1.Time").json_form == "rfc3339-seconds|null"
    assert schema.message("core.v1.Pod").json_form == ""


def test_unknown_key_is_none_and_unknown_message_is_misuse():
    assert schema.field_at("core.v1.Pod", "nothing") is None
    with pytest.raises(errors.Misuse, match=r'no message "core\.v1\.Nothing"'):
        schema.message("core.v1.Nothing")


def test_messages_are_read_once_and_cannot_be_changed():
    pod = schema.message("core.v1.Pod")
    assert schema.message("core.v1.Pod") is pod
    with pytest.raises(TypeError):
        pod.fields["x"] = pod.fields["spec"]  # type: ignore[index]


def test_the_schema_is_closed():
    for name in schema.message_names():
        for field in schema.message(name).wire.values():
            assert schema.is_scalar(field.type) or schema.message(field.type).name == field.type
    for row in schema.kind_rows():
        assert schema.message(row["message"]).name == row["message"]
    assert not schema.is_scalar("core.v1.Pod")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("core.v1.Pod", True),
        ("core.v1.PodList", True),
        ("meta.v1.DeleteOptions", True),
        ("core.v1.PodSpec", False),
        ("meta.v1.ObjectMeta", False),
    ],
)
def test_who_has_type_meta(name, expected):
    assert schema.has_type_meta(name) is expected
