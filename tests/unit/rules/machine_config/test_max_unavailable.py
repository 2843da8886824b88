# SPDX-License-Identifier: Apache-2.0
"""How many machines may be unavailable at once."""

from __future__ import annotations

import pytest

from handfast.rules.machine_config import max_unavailable


# OpenShift's TestMaxUnavailable: of four machines.
@pytest.mark.parametrize(
    ("value", "machines"),
    [
        pytest.param(None, 1, id="case#0"),
        pytest.param(2, 2, id="case#1"),
        pytest.param(0, 1, id="case#2"),
        pytest.param("50%", 2, id="case#3"),
        pytest.param("60%", 2, id="case#4"),
        pytest.param("0%", 1, id="none counts as one"),
        pytest.param("100%", 4, id="all"),
        pytest.param(9, 9, id="more than there are"),
    ],
)
def test_max_unavailable(value: object, machines: int) -> None:
    assert max_unavailable.of(value, 4) == machines


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("50 percent", id="case#5"),
        pytest.param("60", id="case#6"),
        pytest.param("40 %", id="case#7"),
        *("", "%", "-1%", "101%", "050%", "5.5%", "५०%", -1, True, 2.5, [], "1" * 9999 + "%"),
    ],
)
def test_what_says_no_number_of_machines_is_refused_by_name(value: object) -> None:
    with pytest.raises(max_unavailable.Refused) as refused:
        max_unavailable.of(value, 4)
    assert refused.value.reason == "MaxUnavailableRefused"
    assert refused.value.message.startswith("spec.maxUnavailable: ")
    assert repr(str(value)[:60]) in refused.value.message
    assert '"0%" to "100%"' in refused.value.message
    assert len(refused.value.message) < 200


def test_of_arbiters_one_at_a_time_is_changed() -> None:
    assert max_unavailable.of("100%", 4, "arbiter") == 1
