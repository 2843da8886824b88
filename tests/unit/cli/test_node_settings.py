# SPDX-License-Identifier: Apache-2.0
"""What is said of a setting that `handfast node` and `handfast join` share; what is allowed is tested elsewhere."""

from __future__ import annotations

import pathlib

import click
import pytest
from click.testing import CliRunner

from handfast.cli import node_settings


@pytest.mark.parametrize(
    ("flag", "variable", "found"),
    [("/f", "/v", "/f"), ("", "/v", ""), (None, "/v", "/v"), (None, "", None), (None, None, None)],
)
def test_a_flag_counts_before_its_variable_and_an_empty_variable_is_none(monkeypatch, flag, variable, found):
    monkeypatch.delenv("HANDFAST_CERT_DIR", raising=False)
    if variable is not None:
        monkeypatch.setenv("HANDFAST_CERT_DIR", variable)
    assert node_settings.named({"cert_dir": flag}, "cert-dir") == found


def test_only_the_settings_that_are_named_are_read(monkeypatch):
    monkeypatch.setenv("HANDFAST_CERT_DIR", "/v")
    monkeypatch.setenv("HANDFAST_VERBOSITY", "x")
    found = node_settings.resolved({"kubeconfig": "/k"}, "cert-dir", "kubeconfig")
    assert (found.cert_dir, found.kubeconfig) == (pathlib.Path("/v"), pathlib.Path("/k"))


@pytest.mark.parametrize(
    ("default", "shown"), [("/d", "[$HANDFAST_CERT_DIR; default: /d]"), ("", "[$HANDFAST_CERT_DIR]")]
)
def test_the_help_names_the_variable(default, shown):
    option = node_settings.setting("cert-dir", "A place.", default, metavar="DIR")
    command = click.command()(option(lambda **_: None))
    assert f"--cert-dir DIR  A place.  {shown}" in CliRunner().invoke(command, ["--help"]).output
