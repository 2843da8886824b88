# SPDX-License-Identifier: Apache-2.0
"""`handfast mesh install`: what may be typed, and what a person reads."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from handfast.cli import main, output
from handfast.rules.mesh import control_plane
from handfast.runtime import clock as clocks
from tests.unit.cli import reaching
from tests.unit.client.mesh_api import MeshApi
from tests.unit.pki import making


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> Iterator[MeshApi]:
    with reaching.reached(monkeypatch, MeshApi()) as there:
        yield there


def run(*arguments: object) -> int:
    return output.run(main.command, ["mesh", "install", *map(str, arguments)])


def reason(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err.splitlines()[-1].removeprefix("reason: ")


def files(directory: pathlib.Path, days: float = 300) -> list[str]:
    now = clocks.SystemClock().now().replace(microsecond=0)
    window: dict[str, Any] = {"not_before": now - making.DAY, "not_after": now + days * making.DAY}
    root = making.ca("root", **window)
    made = making.ca("issuer", root, **window)
    words = []
    for flag, data in (("trust-anchors", root.pem), ("issuer-cert", made.pem), ("issuer-key", made.key_pem)):
        path = directory / flag
        path.write_bytes(data)
        path.chmod(0o600)
        words += [f"--{flag}", str(path)]
    return words


def test_twice_is_once(reached, capsys):
    assert run() == 0
    first = capsys.readouterr()
    assert first.out == "the mesh is installed in namespace linkerd\n"
    assert first.err.splitlines()[-1] == "created ConfigMap linkerd/linkerd-config"
    assert run() == 0
    second = capsys.readouterr()
    assert second.out == "the mesh in namespace linkerd is as it should be: nothing was changed\n"
    assert second.err == ""


def test_files_of_ones_own_are_used_and_what_ends_soon_is_told(reached, capsys, tmp_path):
    assert run(*files(tmp_path, days=0.1)) == 0
    assert "warning: the issuer will expire on " in capsys.readouterr().err


def test_settings_are_written(reached):
    assert run("--set", "identity.lifetime=12h", "--trust-domain", "mesh.example") == 0
    data = reached.objects["configmaps", "linkerd", control_plane.CONFIG]["data"]
    assert (data["identity.lifetime"], data["trustDomain"]) == ("12h", "mesh.example")


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_manifests_are_printed_and_nothing_is_asked(reached, capsys, form):
    assert run("-o", form, "--control-plane-namespace", "mesh") == 0
    printed = capsys.readouterr()
    documents = list(yaml.safe_load_all(printed.out)) if form == "yaml" else json.loads(printed.out)["items"]
    assert {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mesh"}} in documents
    assert "warning: the manifests hold the private key of the issuer" in printed.err
    assert reached.calls == []


def test_certificates_in_manifests_can_be_read_by_people(capsys):
    assert run("-o", "yaml") == 0
    assert "ca-bundle.crt: |\n    -----BEGIN CERTIFICATE-----\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("--tls",), 2, "Usage"),
        (("--tls", "optional"), 2, "Usage"),
        (("--set", "x"), 2, "Usage"),
        (("--set", "x=y"), 1, "MeshSettingsUnreadable"),
        (("--set", "trustDomain=a", "--set", "trustDomain=b"), 2, "Usage"),
        (("--issuer-key", "x"), 2, "Usage"),
        (("--issuer-key", "x", "--issuer-cert", "x", "--trust-anchors", "/nowhere/x"), 1, "FileNotFound"),
        (("--control-plane-namespace", "A"), 1, "NotALabel"),
    ],
)
def test_what_is_typed_wrongly_is_refused_before_anybody_is_asked(reached, capsys, words, code, expected):
    assert run(*words) == code
    assert reason(capsys) == expected
    assert reached.calls == []
