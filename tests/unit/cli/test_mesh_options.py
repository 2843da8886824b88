# SPDX-License-Identifier: Apache-2.0
"""Options of the mesh's commands: words that are not loaded from the rules are theirs."""

from __future__ import annotations

from handfast.cli import mesh_options
from handfast.rules.mesh import control_plane


def test_the_namespace_is_that_of_the_rules():
    assert mesh_options.NAMESPACE == control_plane.NAMESPACE
