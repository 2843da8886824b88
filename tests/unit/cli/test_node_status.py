# SPDX-License-Identifier: Apache-2.0
"""How the difference of two clocks is told. The rest of `handfast node status` is tested in test_node_agent.py."""

from __future__ import annotations

import pytest

from handfast.cli import node_status


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "the server does not say its time"),
        (1.5, "agrees with the server's"),
        (90.0, "90 s ahead of the server's"),
        (-3600.0, "3600 s behind the server's"),
    ],
)
def test_the_clocks_difference_is_told_in_words(seconds, text):
    assert node_status._clock(seconds) == text
