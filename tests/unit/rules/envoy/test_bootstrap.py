# SPDX-License-Identifier: Apache-2.0
"""The bootstrap is as it was tried."""

import pytest

from handfast.rules.envoy import bootstrap
from tests.unit.rules.envoy import tried


def test_it_is_as_it_was_tried_with_every_counter():
    facts = bootstrap.Bootstrap(
        node="pod", agent_socket="/run/id/xds.sock", admin_socket="/run/id/admin.sock", files=1024
    )
    expected = tried.tried("bootstrap")
    del expected["stats_config"]
    document = bootstrap.document(facts)
    (layer,) = document.pop("layered_runtime")["layers"]
    (monitor,) = document.pop("overload_manager")["resource_monitors"]
    assert document == expected
    # The longest name, with a step for each letter.
    assert all(value >= 2 * 253 for value in layer["static_layer"].values())
    assert monitor["typed_config"]["max_active_downstream_connections"] == 384


@pytest.mark.parametrize("files, most", [(64, 100), (1024, 384), (1 << 20, 50_000)])
def test_connections_leave_files_for_everything_else(files, most):
    assert bootstrap.connections(files) == most
