# SPDX-License-Identifier: Apache-2.0
"""What several tests of the API server open."""

from __future__ import annotations

import pathlib

import pytest

from tests.unit.serving import doors


@pytest.fixture
def door(tmp_path: pathlib.Path) -> doors.Opener:
    return doors.opener(tmp_path)
