# SPDX-License-Identifier: Apache-2.0
"""What a write does between its waits. Whole writes are in `tests/scenarios`."""

from __future__ import annotations

from typing import cast

import pytest

from handfast.apiserver import calls
from handfast.apiserver.verbs import write_steps


class Sent:
    """As much of a call as is looked at."""

    def __init__(self, media: str) -> None:
        self._media = media

    def header(self, name: str) -> str:
        assert name == "Content-Type"
        return self._media


@pytest.mark.parametrize(
    ("media", "apply"),
    [
        ("application/apply-patch+yaml", True),
        ("Application/Apply-Patch+YAML", True),
        (" application/apply-patch+yaml; charset=utf-8", True),
        ("application/apply-patch+cbor", False),
        ("application/merge-patch+json", False),
        ("", False),
    ],
)
def test_an_apply_is_known_by_its_media_type_however_it_is_written(media, apply):
    assert write_steps._is_apply(cast("calls.Call", Sent(media))) is apply
