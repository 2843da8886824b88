# SPDX-License-Identifier: Apache-2.0
"""The flags that say which Machines count."""

from __future__ import annotations

import pytest

from handfast.cli import machine_flags, main, output
from handfast.rules.machines import group_versions


def flags(*groups: str) -> dict[str, object]:
    return {"api_group_version": groups, "machine_namespace": "fleet", "management_cluster_kubeconfig": "k", "else": 1}


def test_the_flags_are_taken_out_of_those_of_the_command():
    given = flags("cluster.x-k8s.io/v1beta2")
    assert machine_flags.taken(given) == {
        "groups": (group_versions.GroupVersions("cluster.x-k8s.io", ("v1beta2",)),),
        "namespace": "fleet",
        "kubeconfig": "k",
    }
    assert given == {"else": 1}
    assert machine_flags.taken(flags())["groups"] == group_versions.DEFAULT


def test_a_group_without_machines_is_wrong_usage(capsys: pytest.CaptureFixture[str]):
    assert output.run(main.command, ["serve", "controllers", "--api-group-version", "example.com"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "error: --api-group-version: 'example.com': there are no Machines of 'example.com'"
    assert lines[-1] == "reason: BadGroupVersion"
