# SPDX-License-Identifier: Apache-2.0
"""The three families of errors."""

from __future__ import annotations

import pytest

from handfast import errors


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (errors.HandfastError, "Error"),
        (errors.Misuse, "InternalError"),
        (errors.Refused, "Refused"),
        (errors.Unavailable, "ServiceUnavailable"),
    ],
)
class TestFamily:
    def test_an_error_has_the_reason_of_its_family(self, kind: type[errors.HandfastError], reason: str) -> None:
        made = kind("what happened")
        assert (made.message, str(made), made.reason, made.hint) == ("what happened", "what happened", reason, None)
        assert isinstance(made, errors.HandfastError)

    def test_said_by_the_raiser(self, kind: type[errors.HandfastError], reason: str) -> None:
        made = kind("what happened", reason="DiskFull", hint="make room")
        assert (made.reason, made.hint) == ("DiskFull", "make room")
        # One instance never changes what the others say.
        assert (kind("again").reason, kind("again").hint) == (reason, None)


def test_families_are_apart() -> None:
    families = (errors.Misuse, errors.Refused, errors.Unavailable)
    for one in families:
        for other in families:
            assert (one is other) == issubclass(one, other)
