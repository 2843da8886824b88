# SPDX-License-Identifier: Apache-2.0
"""What is served, as Ignition itself judges it: `ignition-validate`, where `HANDFAST_IGNITION_VALIDATE` names one.

No Debian package has it, so that a machine without one is reported as not run.
"""

from __future__ import annotations

import os
import pathlib

import pytest

from handfast.rules.machine_config import ignition
from tests.interop import tools
from tests.scenarios import configurations_world as world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
def validate() -> tools.Tool:
    binary = os.environ.get("HANDFAST_IGNITION_VALIDATE")
    if not binary:
        pytest.skip("not run: there is no ignition-validate; HANDFAST_IGNITION_VALIDATE names one")
    return tools.Tool((binary,))


def test_ignition_finds_nothing_wrong_with_what_is_served(validate: tools.Tool, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "config.ign"
    with world.Configured(tmp_path / "data") as plane:
        plane.ready()
        path.write_text(plane.operator("machine", "ignition", "--pool", "worker"))
        # The pointer configuration, before it is used.
        assert validate(path).stdout == ""
        _, secret = world.pointed(path.read_text())
        assert plane.served("/config/worker", secret).code == 200
        for version in ignition.VERSIONS:
            wanted = f"application/vnd.coreos.ignition+json;version={version}"
            path.write_bytes(plane.client().ask("/config/worker", secret, Accept=wanted).body)
            assert validate(path).stdout == "", version
