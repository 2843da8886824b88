# SPDX-License-Identifier: Apache-2.0
"""Lists of ports in annotations: numbers, ranges and names; what is none is left out."""

from __future__ import annotations

import pytest

from handfast.rules.mesh import port_lists


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("", ()),
        ("80", ((80, 80),)),
        ("80, 443", ((80, 80), (443, 443))),
        ("80-90,mysql", ((80, 90), (3306, 3306))),
        ("1-65535", ((1, 65535),)),
        ("90-80,0,65536,-1,69420,x,,1,,,,2", ((1, 1), (2, 2))),
        ("٨٠", ()),
    ],
)
def test_what_is_no_port_is_left_out(text, ranges):
    assert port_lists.parse(text, {"mysql": 3306}).ranges == ranges


def test_a_port_is_on_the_list_or_it_is_not():
    ports = port_lists.parse("80-90,100")
    assert [port for port in (79, 80, 90, 91, 100) if port in ports] == [80, 90, 100]
    assert 3306 in port_lists.OPAQUE


def test_a_list_is_read_up_to_its_bound():
    assert len(port_lists.parse("1," * 5000).ranges) == port_lists.MOST_PARTS
