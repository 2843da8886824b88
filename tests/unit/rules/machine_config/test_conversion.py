# SPDX-License-Identifier: Apache-2.0
"""Conversion: the rows of OpenShift's TestIgnitionConverterConvert, and what a version lacks."""

from __future__ import annotations

from typing import Any

import pytest

from handfast import errors
from handfast.rules.machine_config import conversion, ignition, merging, spec2
from tests.unit.rules import machine_config_cases as cases

USERS: dict[str, Any] = {"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["5678", "abc"]}]}}
V3 = cases.ignition(**USERS)
V2 = cases.ignition("2.2.0", **USERS)


# --- the rows of TestIgnitionConverterConvert -------------------------------------------------------------------------


def test_conversion_from_2_2_to_3_5():
    assert merging.read(cases.machine_config(config=V2)).config.document() == V3


@pytest.mark.parametrize(
    "version",
    [
        pytest.param("2.2.0", id="Conversion from 3.5 to 2.2"),
        pytest.param("3.4.0", id="Conversion from 3.5 to 3.4"),
        pytest.param("3.3.0", id="Conversion from 3.5 to 3.3"),
        pytest.param("3.2.0", id="Conversion from 3.5 to 3.2"),
        pytest.param("3.1.0", id="Conversion from 3.5 to 3.1"),
        pytest.param("3.0.0", id="and to 3.0, which OpenShift does not"),
        pytest.param("3.5.0", id="and to what it is"),
    ],
)
def test_conversion_to_what_is_asked_for(version):
    converted = conversion.convert(V3, version)
    assert converted == {"ignition": {"version": version}, **USERS}
    assert V3["ignition"]["version"] == "3.5.0"


def test_conversion_wrong_source_version():
    """What says 3.5 and has a field of 2.2 is not taken for either."""
    wrong = cases.files({"filesystem": "root", "path": "/etc/motd"})
    assert "filesystem is no field" in cases.refusal(ignition.parse, wrong, cases.WHERE).message


def test_conversion_not_supported():
    with pytest.raises(errors.Misuse):
        conversion.convert(V3, "2.4.0")


# --- beyond them ------------------------------------------------------------------------------------------------------


def test_what_the_version_lacks_is_named():
    document = cases.ignition(kernelArguments={"shouldExist": ["quiet"]})
    assert conversion.convert(document, "3.3.0")["kernelArguments"] == {"shouldExist": ["quiet"]}
    refused = cases.refusal(conversion.convert, document, "3.2.0")
    assert refused.reason == spec2.NOT_CONVERTED
    assert refused.message == "kernelArguments is a field that came with 3.3.0: 3.2.0 lacks it"


def test_what_says_nothing_is_left_out_where_the_version_lacks_the_field():
    document = cases.ignition(
        kernelArguments={},
        passwd={"users": [{"name": "core", "shouldExist": True}]},
        storage={"directories": [{"path": "/d", "mode": 0o755}], "files": None, "luks": []},
    )
    assert conversion.convert(document, "3.1.0") == cases.ignition(
        "3.1.0",
        passwd={"users": [{"name": "core"}]},
        storage={"directories": [{"path": "/d", "mode": 0o755}], "files": None},
    )
