# SPDX-License-Identifier: Apache-2.0
"""`handfast mesh inject` and `uninject`: where manifests come from, what is printed where, and what prints nothing."""

from __future__ import annotations

import io
import json
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from handfast.cli import main, output
from handfast.client import manifests as fetching
from tests.unit.cli import reaching
from tests.unit.client.mesh_api import MeshApi
from tests.unit.pki import making

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers: [{name: web, image: 'web:1'}]\n"
OTHER = "# kept\nkind:   Service\nmetadata: {name: web}\n"
PROXY = "linkerd-proxy"


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> Iterator[MeshApi]:
    with reaching.reached(monkeypatch, MeshApi()) as there:
        yield there


@pytest.fixture
def anchors(tmp_path: pathlib.Path) -> str:
    path = tmp_path / "root.crt"
    path.write_bytes(making.ca("root").pem)
    return str(path)


def run(*arguments: object) -> int:
    return output.run(main.command, ["mesh", *map(str, arguments)])


def written(directory: pathlib.Path, name: str, text: str) -> pathlib.Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def proxies(text: str) -> list[dict[str, Any]]:
    return [
        row
        for document in yaml.safe_load_all(text)
        for row in (document.get("spec") or {}).get("initContainers", [])
        if row["name"] == PROXY
    ]


def test_a_manifest_gets_its_proxy_without_a_cluster(anchors, tmp_path, capsys):
    path = written(tmp_path, "web.yaml", f"{POD}---\n{OTHER}")
    flags = ("--trust-domain", "mesh.example", "--identity-addr", "192.0.2.1:8080", "--proxy-image", "stock:1")
    assert run("inject", "--trust-anchors", anchors, *flags, path) == 0
    printed = capsys.readouterr()
    assert printed.out.endswith(f"---\n{OTHER}")
    assert printed.err == "pod/web injected\nservice/web skipped: this resource kind is unsupported\n"
    [proxy] = proxies(printed.out)
    values = {row["name"]: row.get("value") for row in proxy["env"]}
    assert proxy["image"] == "stock:1"
    assert values["TRUST_DOMAIN"] == "mesh.example"
    assert values["LINKERD2_PROXY_IDENTITY_ADDR"] == "192.0.2.1:8080"


def test_uninject_gives_back_what_was_there_and_twice_is_once(anchors, tmp_path, capsys):
    path = written(tmp_path, "web.yaml", f"{POD}---\n{OTHER}")
    assert run("inject", "--trust-anchors", anchors, path) == 0
    once = capsys.readouterr().out
    assert run("inject", "--trust-anchors", anchors, written(tmp_path, "once.yaml", once)) == 0
    assert capsys.readouterr().out == once
    assert run("uninject", tmp_path / "once.yaml") == 0
    printed = capsys.readouterr()
    assert list(yaml.safe_load_all(printed.out)) == list(yaml.safe_load_all(path.read_text()))
    assert printed.err == "pod/web uninjected\nservice/web skipped: nothing was injected here\n"


def test_the_settings_are_those_of_the_clusters_mesh(reached, tmp_path, capsys):
    assert run("install", "--trust-domain", "mesh.example", "--set", "proxy.image=agent:7") == 0
    capsys.readouterr()
    assert run("inject", written(tmp_path, "web.yaml", POD)) == 0
    [proxy] = proxies(capsys.readouterr().out)
    values = {row["name"]: row.get("value") for row in proxy["env"]}
    assert (proxy["image"], values["TRUST_DOMAIN"]) == ("agent:7", "mesh.example")
    assert values["LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS"].startswith("-----BEGIN CERTIFICATE-----")


def test_without_a_mesh_nothing_is_injected(reached, tmp_path, capsys):
    assert run("inject", written(tmp_path, "web.yaml", POD)) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.endswith("reason: NoMesh\n")


def test_directories_are_read_through_and_joined(anchors, tmp_path, capsys):
    folder = tmp_path / "all"
    written(folder, "b/two.yml", OTHER.rstrip("\n"))
    written(folder, "c.yaml", f"---\n{OTHER}")
    written(folder, "a.json", json.dumps({"kind": "ConfigMap"}))
    written(folder, "notes.txt", "not: [yaml")
    assert run("inject", "--trust-anchors", anchors, folder) == 0
    assert capsys.readouterr().out == '{"kind": "ConfigMap"}\n---\n' + OTHER + "---\n" + OTHER
    (tmp_path / "empty").mkdir()
    assert run("uninject", tmp_path / "empty") == 1
    assert capsys.readouterr().err.endswith("reason: NoManifest\n")


def test_standard_input_is_read_once(anchors, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(POD.encode())))
    assert run("inject", "--trust-anchors", anchors, "-o", "json", "-") == 0
    [document] = map(json.loads, capsys.readouterr().out.splitlines())
    assert [row["name"] for row in document["spec"]["initContainers"]] == ["linkerd-init", PROXY]
    assert run("uninject", "-", "-") == 2


def test_standard_input_has_a_bound(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b" " * (16 * 1024 * 1024 + 1))))
    assert run("uninject", "-") == 1
    assert capsys.readouterr().err.endswith("reason: FileTooLarge\n")


def test_urls_are_fetched_over_https_only(monkeypatch, capsys):
    async def fetch(url: str) -> bytes:
        assert url == "https://example.com/web.yaml?key=s"
        return b"kind: A\nkind: B\n"

    monkeypatch.setattr(fetching, "fetch", fetch)
    assert run("uninject", "https://example.com/web.yaml?key=s") == 1
    assert capsys.readouterr().err.startswith("error: https://example.com/web.yaml: kind is there twice\n")
    assert run("uninject", "http://example.com/web.yaml") == 2


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("a: &a [1]\nb: *a\n", "BadManifest"),
        ("a: [\n", "BadManifest"),
        (POD.replace("spec:\n", "spec:\n  hostNetwork: true\n"), "NotInjectable"),
        (POD.replace("spec:\n", "spec:\n  serviceAccountName: a.b\n"), "NotALabel"),
        (POD.replace("spec:\n", "spec:\n  volumes: [{name: linkerd-identity-store}]\n"), "MeshNameTaken"),
        (POD.replace("{name: web}", "{name: web, annotations: {linkerd.io/identity: 'on'}}"), "BadIdentityAnnotation"),
        ("kind: Service\nmetadata: {annotations: {linkerd.io/identity: enabled}}\n", "BadIdentityAnnotation"),
        ("apiVersion: v1\nkind: Pod\n", "NotAPodTemplate"),
    ],
)
def test_nothing_is_printed_where_anything_is_refused(anchors, tmp_path, capsys, bad, reason):
    good = written(tmp_path, "good.yaml", POD)
    path = written(tmp_path, "bad.yaml", bad)
    assert run("inject", "--trust-anchors", anchors, good, path) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"error: {path}: ")
    assert printed.err.endswith(f"reason: {reason}\n")


def test_names_with_a_uid_are_not_composed_offline(anchors, tmp_path, capsys):
    path = written(tmp_path, "web.yaml", POD)
    assert run("inject", "--trust-anchors", anchors, "--set", "identity.nameScheme=uid", path) == 1
    assert capsys.readouterr().err.endswith("reason: UidUnknown\n")


def test_settings_are_typed_offline_only(tmp_path, capsys):
    assert run("inject", "--trust-domain", "mesh.example", written(tmp_path, "web.yaml", POD)) == 2
    assert "trustDomain goes with --trust-anchors" in capsys.readouterr().err


def test_an_identity_without_identities_in_the_control_plane_fails(anchors, tmp_path, capsys):
    path = written(
        tmp_path, "web.yaml", POD.replace("{name: web}", "{name: web, annotations: {linkerd.io/identity: enabled}}")
    )
    settings = ("--set", "identity.enabled=false", "--set", "identity.default=disabled")
    assert run("inject", "--trust-anchors", anchors, *settings, path) == 1
    assert capsys.readouterr().err.endswith("reason: MeshHasNoIdentities\n")
