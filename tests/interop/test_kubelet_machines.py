# SPDX-License-Identifier: Apache-2.0
"""A stock kubelet that joins by inventory: with the masters' bootstrap kubeconfig, and with the workers' token.

Proves that its request is what the machine-approver expects of a kubelet, that it is approved by its Machine, and that without a
Machine it gets nothing. Without a kubelet nothing is proven: see `kubelets`.
"""

from __future__ import annotations

import base64
import itertools
import json
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from handfast.pki import requests
from handfast.rules import user_names
from handfast.rules.machines import bootstrapper
from tests.interop import kubelets, running, tools
from tests.interop.kubelets import Machine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def binary() -> str:
    return kubelets.find()


@pytest.fixture(scope="module")
def plane(binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[running.ControlPlane]:
    """A control plane that admits machines by inventory, if there is a kubelet for it."""
    found = running.ControlPlane(tmp_path_factory.mktemp("fleet") / "data", "--machines")
    yield found
    found.stop()
    assert found.failures() == []


@pytest.fixture
def operator(plane: running.ControlPlane) -> tools.Tool:
    return tools.Tool(tools.HANDFAST, ("--kubeconfig", str(plane.kubeconfig)))


@pytest.fixture
def machine(binary: str, tmp_path: pathlib.Path) -> Machine:
    """A machine without any credential yet."""
    found = Machine(binary, tmp_path, f"fleet-{next(_numbers)}.example")
    found.configure(rotateCertificates=True)
    return found


def give(machine: Machine, kind: str, plane: running.ControlPlane, operator: tools.Tool) -> None:
    """Put the bootstrap kubeconfig of this kind on the machine."""
    source = plane.directory / "machines" / "kubeconfig-kubelet"
    if kind == "worker":
        out = machine.home / "out"
        running.eventually(lambda: _has_token(operator), "the workers' token")
        operator("machine", "credentials", "create", "--kind", "worker", "--out", out)
        source = out / "kubeconfig-kubelet-worker"
    shutil.copy(source, machine.bootstrap)


def _has_token(operator: tools.Tool) -> bool:
    rows = json.loads(operator("machine", "credentials", "show", "-o", "json").stdout)["doors"]
    return any(row["kind"] == "account" for row in rows)


def requests_of(machine: Machine, operator: tools.Tool) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(operator("csr", "list", "-o", "json").stdout)["items"]
    wanted = user_names.node_subject(machine.node)
    return [row for row in rows if requests.parse(base64.b64decode(row["spec"]["request"])).subject == wanted]


@pytest.mark.parametrize("kind", ["master", "worker"])
def test_a_kubelet_joins_by_its_machine(
    kind: str, machine: Machine, plane: running.ControlPlane, operator: tools.Tool
) -> None:
    name = machine.node.partition(".")[0]
    operator("machine", "create", name, "--dns", machine.node, "--role", kind)
    give(machine, kind, plane, operator)
    with machine.awaiting_runtime():
        pair = machine.wait_for_pair()
        stages = json.loads(operator("machine", "explain", name, "-o", "json").stdout)["stages"]
    assert str(pair.leaf.subject) == f"CN=system:node:{machine.node},O=system:nodes"
    seen = {row["stage"]: (row["state"], row["seen"]) for row in stages}
    assert [seen[stage][0] for stage in ("known", "credential", "asked", "judged", "issued")] == ["done"] * 5
    assert seen["judged"][1].startswith("approved (NodeCSRApprove)")
    (request,) = requests_of(machine, operator)
    assert request["spec"]["username"] == bootstrapper.USER


def test_a_kubelet_without_a_machine_gets_nothing_and_the_operator_sees_why(
    machine: Machine, plane: running.ControlPlane, operator: tools.Tool
) -> None:
    give(machine, "master", plane, operator)
    with machine.awaiting_runtime():
        (request,) = machine.eventually(lambda: requests_of(machine, operator), "a request")
        said = operator("csr", "explain", request["metadata"]["name"]).stdout
        assert f'no Machine has the InternalDNS name "{machine.node}"' in said
        assert machine.pair() is None
