# SPDX-License-Identifier: Apache-2.0
"""Formats: what has them, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.api.custom import structural_formats

GOOD: dict[str, list[Any]] = {
    "date": ["2024-02-29"],
    "date-time": ["2024-02-29T23:59:60Z", "2024-01-01t00:00:00.123456789+01:00", "2024-01-01 00:00:00-0100"],
    "datetime": ["2024-01-01T00:00:00Z"],
    "duration": ["1h30m", "1.5s", "-2ms", "0", ".5h", "5 days", "3 weeks", "10µs"],
    "ipv4": ["10.0.0.1"],
    "ipv6": ["::1", "2001:db8::ffff"],
    "cidr": ["10.0.0.0/8", "10.0.0.1/24", "2001:db8::/64"],
    "mac": ["01:23:45:67:89:ab", "01-23-45-67-89-AB", "01:23:45:67:89:ab:cd:ef"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000", "123e4567e89b12d3a456426614174000"],
    "uuid3": ["123e4567-e89b-32d3-a456-426614174000"],
    "uuid4": ["123e4567-e89b-42d3-a456-426614174000"],
    "uuid5": ["123e4567-e89b-52d3-a456-426614174000"],
    "byte": ["", "aGVsbG8="],
    "uri": ["https://example.com/a?b", "/path", "urn:x:y"],
    "hostname": ["example.com", "a", "a-b.c."],
    "email": ["me@example.com"],
    "hexcolor": ["#fff", "a0b1c2"],
    "rgbcolor": ["rgb(1, 2,3)"],
    "int32": [0, 2**31 - 1, -(2**31), 1.0, "text"],
    "int64": [2**63 - 1, -(2**63)],
    "password": ["anything"],
    "never-heard-of": ["x", 1],
}
BAD: dict[str, list[Any]] = {
    "date": ["2023-02-29", "20240101", "2024-1-01", "", "２０２４-01-01"],
    "date-time": ["2024-01-01", "2024-13-01T00:00:00Z", "2024-01-01T24:00:00Z", "2024-01-01T00:00:00", "x\n"],
    "datetime": ["now"],
    "duration": ["", "1", "1 fortnight", "h", "1h\n"],
    "ipv4": ["::1", "10.0.0", "10.0.0.256", "010.0.0.1", "1" * 65],
    "ipv6": ["10.0.0.1", "fe80::1%eth0", ":::"],
    "cidr": ["10.0.0.1", "10.0.0.0/33", "10.0.0.0/255.0.0.0", "x/8", "fe80::%1/64", f"10.0.0.0/{'0' * 60}8"],
    "mac": ["01:23:45:67:89", "01:23-45:67:89:ab", "0g:23:45:67:89:ab"],
    "uuid": ["123e4567", "123e4567-e89b-12d3-a456-42661417400g"],
    "uuid3": ["123e4567-e89b-42d3-a456-426614174000"],
    "uuid4": ["123e4567-e89b-52d3-a456-426614174000"],
    "uuid5": ["123e4567-e89b-32d3-a456-426614174000"],
    "byte": ["a", "a b=", "ä"],
    "uri": ["nothing", "https://exa mple.com", "http://[::1"],
    "hostname": ["-a", "a..b", "a" * 64, "a." * 130],
    "email": ["example.com", "@example.com", "a b@example.com", "me@-x"],
    "hexcolor": ["#ffff", "red"],
    "rgbcolor": ["rgb(1,2)", "rgb(1,2,3) "],
    "int32": [2**31, -(2**31) - 1, 10**400],
    "int64": [2**63],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in GOOD.items() for value in values])
def test_has_the_format(name: str, value: Any) -> None:
    assert structural_formats.holds(name, value)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_has_not_the_format(name: str, value: Any) -> None:
    assert not structural_formats.holds(name, value)
