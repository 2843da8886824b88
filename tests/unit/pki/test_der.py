# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from handfast.pki import der


@pytest.mark.parametrize(
    ("length", "header"), [(0, "3000"), (127, "307f"), (128, "308180"), (255, "3081ff"), (256, "30820100")]
)
def test_lengths(length: int, header: str):
    made = der.encode(der.SEQUENCE, b"x" * length)
    assert made == bytes.fromhex(header) + b"x" * length
    assert der.content(made) == b"x" * length


def test_values_one_after_the_other():
    values = [der.encode(der.INTEGER, b"\1"), der.encode(der.OCTET_STRING, b"x" * 300), der.encode(der.SET, b"")]
    assert list(der.parts(b"".join(values))) == values
