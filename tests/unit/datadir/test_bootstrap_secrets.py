# SPDX-License-Identifier: Apache-2.0
"""The secret of a pool in a bootstrap directory."""

from __future__ import annotations

import datetime
import pathlib

import pytest
import yaml

from handfast import errors
from handfast.datadir import bootstrap_secrets
from handfast.rules.machine_config import ignition_secrets

NOW = datetime.datetime(2026, 11, 17, 12, tzinfo=datetime.UTC)


def digests(path: pathlib.Path) -> list[str]:
    return [entry.digest for entry in ignition_secrets.read(yaml.safe_load(path.read_text()))]


def test_the_file_is_a_secret_with_the_digest_for_its_owner_alone(tmp_path):
    path = bootstrap_secrets.keep(tmp_path / "boot", "master", "hush", None)
    assert path.name == "ignition-pool-master.yaml"
    assert path.stat().st_mode & 0o777 == 0o600
    assert digests(path) == [ignition_secrets.digest("hush")]
    assert "hush" not in path.read_text()


def test_it_is_replaced_on_demand_and_the_one_before_goes_on(tmp_path):
    path = bootstrap_secrets.keep(tmp_path, "master", "first", None)
    with pytest.raises(errors.Refused, match="has a secret already") as refused:
        bootstrap_secrets.keep(tmp_path, "master", "second", None)
    assert refused.value.reason == "IgnitionSecretExists"
    bootstrap_secrets.keep(tmp_path, "master", "second", NOW)
    assert digests(path) == [ignition_secrets.digest("second"), ignition_secrets.digest("first")]
    bootstrap_secrets.keep(tmp_path, "master", "third", NOW)
    assert digests(path) == [ignition_secrets.digest("third"), ignition_secrets.digest("second")]


@pytest.mark.parametrize("text", ["kind: Secret\n", "[]\n"])
def test_a_file_of_somebody_else_is_left_alone(tmp_path, text):
    path = bootstrap_secrets.keep(tmp_path, "master", "first", None)
    path.write_text(text)
    with pytest.raises(errors.Refused, match="is no secret of a pool"):
        bootstrap_secrets.keep(tmp_path, "master", "second", NOW)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    path = bootstrap_secrets.keep(tmp_path, "master", "first", None)
    path.write_text("{")
    with pytest.raises(errors.Refused, match=r"ignition-pool-master\.yaml: "):
        bootstrap_secrets.keep(tmp_path, "master", "second", NOW)
