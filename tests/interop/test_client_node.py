# SPDX-License-Identifier: Apache-2.0
"""@kubernetes/client-node, from npm as it is: every verb, watches that resume, an informer, apply, custom resources, logins.

The program is `node/client.mjs`: one process, which says what it saw, part by part. scripts/test-peers.sh installs the
client by `node/package-lock.json`; where it is not there this is not run, and a failure in CI.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from tests.interop import peer_objects, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

INSTALLED = pathlib.Path(sys.prefix) / "node" / "node_modules" / "@kubernetes" / "client-node" / "dist" / "index.js"
PROGRAM = pathlib.Path(__file__).parent / "node" / "client.mjs"


def _node() -> str:
    node = shutil.which("node")
    if node is None or not INSTALLED.exists():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(
            "not run: node or @kubernetes/client-node is not there; scripts/test-peers.sh installs them"
        )
    return str(node)


def test_the_client_of_node_does_what_clients_do(
    control_plane: running.ControlPlane, namespace: str, unique: str
) -> None:
    definition = peer_objects.definition("elder", "elders")
    environment = {
        "PATH": os.environ["PATH"],
        "KUBECONFIG": str(control_plane.kubeconfig),
        "CLIENT_NODE": str(INSTALLED),
        "NAMESPACE": namespace,
        "UNIQUE": unique,
        "DEFINITION": json.dumps(definition),
        "REQUEST": json.dumps(peer_objects.signing_request(unique)),
        "DEPLOYMENT": json.dumps(peer_objects.deployment("web")),
        "POD": json.dumps(peer_objects.pod("alone")),
    }
    done = subprocess.run(
        [_node(), str(PROGRAM)], capture_output=True, env=environment, timeout=150, check=False, text=True
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    account = f"system:serviceaccount:{namespace}:default"
    seen: dict[str, object] = {}
    for line in done.stdout.splitlines():
        seen |= json.loads(line)
    assert seen == {
        "verbs": {
            "patched": {"b": "2", "c": "3"},
            "replaced": {"d": "4"},
            "stale": 409,
            "listed": ["one"],
            "deleted": "Success",
            "gone": 404,
        },
        "watch": ["ADDED", "second", "DELETED", "second"],
        "informer": ["add first", "add third", "delete third"],
        "apply": {"refused": 409, "forced": {"a": "2", "b": "1"}, "left": {"a": "2"}},
        "custom": {"spec": {"size": 2}, "scale": [2, 3]},
        "signed": "-----BEGIN CERTIFICATE-----",
        "token": {"reviewed": account, "self": account, "secrets": 403},
        "scale": {"replicas": 5, "pod": 404},
    }
