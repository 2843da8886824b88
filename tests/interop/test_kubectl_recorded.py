# SPDX-License-Identifier: Apache-2.0
"""What kubectl prints here, beside what the same kubectl printed on a kube-apiserver 1.36.4 (`kubectl_output-*.yaml`).

Proves that the commands of `kubectl_commands.yaml` print the same and end with the same code, but for the rows of `DIFFERENT`,
each of which has its reason, and must be needed. What differs from run to run is replaced by a word, in
`scripts/record_kubectl.py`; how soon an answer comes is not compared.
"""

from __future__ import annotations

import os
import pathlib
from typing import Any

import pytest
import yaml

from tests import source_text
from tests.interop import running

pytestmark = [pytest.mark.slow, pytest.mark.kubectl, pytest.mark.timeout(180)]

record = source_text.script("record_kubectl")
GROUPS: dict[str, dict[str, Any]] = record.groups()
HERE = pathlib.Path(__file__).parent

_NO_ADDRESSES = "Services get no cluster addresses and no node ports: nothing here would route them"
_NAMES_THE_FIELD = "the message names the field and what is wrong with it, without the words of Go"
_NO_QUOTING = "no message quotes a value that may be a secret"
# (group, command): why it differs.
DIFFERENT = {
    (
        "configmaps",
        'patch cm settings --type=json -p [{"op":"remove","path":"/data/nothing"}]',
    ): "the message names the operation that fails",
    ("secrets", 'patch secret password -p {"data":{"word":"not\\ base64"}}'): _NO_QUOTING,
    (
        "pods",
        'patch pod web -p {"spec":{"hostname":"other"}}',
    ): "the message is without the difference as structs of Go",
    ("pods", "logs web"): "there are no containers, and no logs of them",
    ("deployments", 'patch deploy web -p {"spec":{"replicas":"many"}}'): _NAMES_THE_FIELD,
    ("services", "get services"): _NO_ADDRESSES,
    ("services", "get svc -o wide"): _NO_ADDRESSES,
    ("services", "get svc front -o yaml"): _NO_ADDRESSES,
    ("services", "describe svc web"): _NO_ADDRESSES,
    (
        "rules",
        'patch rolebinding readers -p {"roleRef":{"name":"other"}}',
    ): "the value is shown by the names of the API",
    ("certificates", "create --validate=false -f -"): "the message does not repeat the request",
    ("applying", "get cm one -o yaml --show-managed-fields"): "who begins to own what was there already has a time",
    ("customs", 'patch clf one --type=merge -p {"spec":{"size":"x"}}'): "one thing that is wrong is told once",
    ("nodes", "describe node cli-node"): "the taint comes from the controller that judges nodes, if it runs",
}


@pytest.fixture(scope="module")
def recorded(kubectl_found: tuple[str, tuple[int, int]]) -> dict[str, list[dict[str, Any]]]:
    _, (major, minor) = kubectl_found
    place = HERE / f"kubectl_output-{major}.{minor}.yaml"
    if not place.exists():
        give_up = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        give_up(f"not run: nothing is recorded for kubectl {major}.{minor}; scripts/record_kubectl.py does it")
    found: dict[str, list[dict[str, Any]]] = yaml.safe_load(place.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("group", GROUPS)
def test_kubectl_prints_what_it_prints_on_a_real_server(
    group: str,
    recorded: dict[str, list[dict[str, Any]]],
    control_plane: running.ControlPlane,
    kubectl_found: tuple[str, tuple[int, int]],
    tmp_path: pathlib.Path,
) -> None:
    kubectl = record.Kubectl(kubectl_found[0], control_plane.kubeconfig, tmp_path)
    here = list(record.run(group, GROUPS[group], kubectl))
    assert [each["command"] for each in here] == [each["command"] for each in recorded[group]], "record it again"
    pairs = zip(here, recorded[group], strict=True)
    different = {each["command"]: (each, there) for each, there in pairs if each != there}
    reasons = {command for name, command in DIFFERENT if name == group}
    for command, (each, there) in different.items():
        # One at a time: pytest shows the lines that differ.
        assert command in reasons or each == there
    assert reasons <= set(different), "rows of DIFFERENT that are not needed"


def test_every_difference_is_of_a_command_and_has_its_reason() -> None:
    commands = {(name, step.line) for name, group in GROUPS.items() for step in record.steps(group)}
    assert set(DIFFERENT) <= commands
    assert all(len(reason.split()) > 4 for reason in DIFFERENT.values())


def test_what_differs_from_run_to_run_becomes_a_word() -> None:
    said = "NAME       AGE   PORT(S)\nweb-bcdfg  3m2s  80:31234/TCP\nuid: 01234567-89ab-cdef-0123-456789abcdef"
    assert record.plain(said) == "NAME   AGE   PORT(S)\nweb-bcdfg   AGE   80:PORT/TCP\nuid: UID"
    assert record.plain("a: 1\nb: 2", "^b") == "b: 2"
    assert record.Step('patch x -p {"a":"b\\ c"}').words() == ["patch", "x", "-p", '{"a":"b c"}']
