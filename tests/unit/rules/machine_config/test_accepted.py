# SPDX-License-Identifier: Apache-2.0
"""Accept headers: the rows of OpenShift's TestAcceptHeaders, and what they leave open."""

from __future__ import annotations

import pytest

from handfast.rules.machine_config import accepted
from tests.unit.rules import machine_config_cases as cases

KIND = "application/vnd.coreos.ignition+json"


# --- the rows of TestAcceptHeaders ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "version"),
    [
        pytest.param(f"{KIND}; version=2.4.0, {KIND}; version=1; q=0.5, */*; q=0.1", "2.2.0", id="IgnV0"),
        pytest.param(f"{KIND};version=3.5.0, */*;q=0.1", "3.5.0", id="IgnV2_35"),
        pytest.param(f"{KIND};version=3.4.0, */*;q=0.1", "3.4.0", id="IgnV2_34"),
        pytest.param(f"{KIND};version=3.3.0, */*;q=0.1", "3.3.0", id="IgnV2_33"),
        pytest.param(f"{KIND};version=3.2.0, */*;q=0.1", "3.2.0", id="IgnV2_32"),
        pytest.param(f"{KIND};version=3.1.0, */*;q=0.1", "3.1.0", id="IgnV2_31"),
        pytest.param(KIND, "2.2.0", id="IgnNoVersion"),
        pytest.param("text/plain", "2.2.0", id="Text"),
        pytest.param("an-invalid-accept-header", "2.2.0", id="Invalid"),
        pytest.param(
            f"{KIND};version=3.99.0, */*;q=0.1", "3.5.0", id="IgnV3_unsupported_newer_minor_falls_back_to_max"
        ),
    ],
)
def test_accept_headers(header, version):
    assert accepted.version(header) == version


@pytest.mark.parametrize(
    "header", [pytest.param(f"{KIND};version=4.0.0, */*;q=0.1", id="IgnV4_unsupported_major_errors")]
)
def test_an_unsupported_major_is_an_error(header):
    refused = cases.refusal(accepted.version, header)
    assert refused.reason == accepted.UNSUPPORTED
    assert refused.message == (
        "Ignition 4.0.0 is not served: there are 2.2.0, 3.0.0, 3.1.0, 3.2.0, 3.3.0, 3.4.0, 3.5.0"
    )


# --- beyond them ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "version"),
    [
        (None, "2.2.0"),
        ("", "2.2.0"),
        (f"{KIND};version=2.2.0", "2.2.0"),
        (f"{KIND};version=2.99.7", "2.2.0"),
        (f"{KIND};version=3.0.0", "3.0.0"),
        (f"{KIND};version=3.4.7", "3.4.0"),
        (f"{KIND};version=3.6.0-experimental", "3.5.0"),
        (f"{KIND};version=3.4", "2.2.0"),
        (f"{KIND};version=three", "2.2.0"),
        (f"{KIND};version=three;version=3.4.0", "3.4.0"),
        (f"{KIND};version=3.1.0;q=0.2, {KIND};version=3.3.0;q=0.9", "3.3.0"),
        (f"{KIND};version=3.1.0, {KIND};version=3.3.0", "3.1.0"),
        (f"{KIND};version=3.1.0;q=high, {KIND};version=3.3.0;q=0.9", "3.1.0"),
        (f"{KIND};version=3.1.0;q=nan, {KIND};version=3.3.0;q=0.9", "3.1.0"),
        (f"{KIND};color=red;version=3.2.0;flag", "3.2.0"),
        (f"{KIND}, {KIND};version=3.2.0;q=0.1", "3.2.0"),
    ],
)
def test_the_first_readable_version_by_weight_counts(header, version):
    assert accepted.version(header) == version


@pytest.mark.parametrize("version", ["1.0.0", "2.0.0", "2.1.0", "0.1.0", "5.0.0", "33.1.0"])
def test_a_version_that_is_not_served_is_an_error(version):
    assert cases.refusal(accepted.version, f"{KIND};version={version}").reason == accepted.UNSUPPORTED
