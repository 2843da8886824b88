# SPDX-License-Identifier: Apache-2.0
"""The resources that the program calls for: each is a row of the table of kinds."""

from __future__ import annotations

import pytest

from handfast import errors
from handfast.api import kinds, resources

NAMED = [row for name, row in vars(resources).items() if name.isupper()]


def test_every_name_is_a_built_in_row():
    assert len(NAMED) > 10
    assert all(row in kinds.builtin() for row in NAMED)


def test_every_name_is_made_of_the_plural():
    words = {name.replace("_", "").lower(): row.plural for name, row in vars(resources).items() if name.isupper()}
    words["certificatesigningrequests"] = words.pop("signingrequests")
    assert all(word == plural for word, plural in words.items())


def test_a_row_says_all_that_a_path_needs():
    lease, node = resources.LEASES, resources.NODES
    assert (lease.group, lease.version, lease.plural, lease.namespaced) == ("coordination.k8s.io", "v1", "leases", True)
    assert (node.group, node.version, node.plural, node.namespaced) == ("", "v1", "nodes", False)


def test_a_resource_that_is_not_in_the_table_is_the_callers_mistake():
    with pytest.raises(errors.Misuse, match='"leases" of the group ""'):
        kinds.row("leases")
