# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import json
import pathlib
from typing import Any

import pytest

from handfast import errors
from handfast.client import connection


def write(directory: pathlib.Path, cluster: dict[str, Any], user: dict[str, Any] | None = None) -> str:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", **({"user": "u"} if user is not None else {})}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://192.0.2.1:6443", **cluster}}],
        "users": [{"name": "u", "user": user}] if user is not None else [],
    }
    path = directory / "kubeconfig"
    path.write_text(json.dumps(document))
    path.chmod(0o600)
    return str(path)


def test_data_in_the_document(tmp_path: pathlib.Path):
    encoded = {name: base64.b64encode(name.encode()).decode() for name in ("ca", "cert", "key")}
    path = write(
        tmp_path,
        {"certificate-authority-data": encoded["ca"], "tls-server-name": "kubernetes"},
        {"client-certificate-data": encoded["cert"], "client-key-data": encoded["key"]},
    )
    assert connection.load(path) == connection.Connection(
        server="https://192.0.2.1:6443",
        ca_pem=b"ca",
        cert_pem=b"cert",
        key_pem=b"key",
        tls_server_name="kubernetes",
    )


def test_files_beside_the_document(tmp_path: pathlib.Path):
    for name in ("ca.crt", "client.crt", "client.key"):
        (tmp_path / name).write_text(name)
        (tmp_path / name).chmod(0o600)
    path = write(
        tmp_path,
        {"certificate-authority": "ca.crt"},
        {"client-certificate": str(tmp_path / "client.crt"), "client-key": "client.key", "tokenFile": "token"},
    )
    found = connection.load(path)
    assert (found.ca_pem, found.cert_pem, found.key_pem) == (b"ca.crt", b"client.crt", b"client.key")
    assert found.token_file == str(tmp_path / "token")


def test_nobody_in_particular(tmp_path: pathlib.Path):
    assert connection.load(write(tmp_path, {})) == connection.Connection(server="https://192.0.2.1:6443")


def test_what_is_wrong_is_told_with_the_file(tmp_path: pathlib.Path):
    path = tmp_path / "k.conf"
    path.write_text("foo: bar")
    with pytest.raises(errors.Refused) as refused:
        connection.load(str(path))
    assert refused.value.reason == "BadKubeconfig"
    assert refused.value.message.startswith(f"{path}: kubeconfig: current-context: not set")


@pytest.mark.parametrize("field", ["insecure-skip-tls-verify", "proxy-url"])
def test_what_would_be_ignored_is_refused(tmp_path: pathlib.Path, field: str):
    value: Any = True if field.startswith("insecure") else "http://proxy"
    with pytest.raises(errors.Refused, match=f"{field} is not supported"):
        connection.load(write(tmp_path, {field: value}))


def test_files_that_cannot_be_read(tmp_path: pathlib.Path):
    with pytest.raises(errors.HandfastError, match="nowhere"):
        connection.load(str(tmp_path / "nowhere"))
    path = write(tmp_path, {"certificate-authority": "missing.crt"})
    with pytest.raises(errors.HandfastError, match=r"missing\.crt"):
        connection.load(path)
    pathlib.Path(path).write_bytes(b"\xff\xfe")
    with pytest.raises(errors.Refused, match="UTF-8"):
        connection.load(path)


def test_several_files_are_read_as_one(tmp_path: pathlib.Path):
    for name, content in (("a", "ca of a"), ("b", "ca of b")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ca.crt").write_text(content)
    one = tmp_path / "a" / "config"
    one.write_text("{clusters: [{name: k, cluster: {server: 'https://192.0.2.9', certificate-authority: ca.crt}}]}")
    two = write(tmp_path / "b", {"certificate-authority": "ca.crt"}, {"token": "t"})
    found = connection.load_merged([str(tmp_path / "gone"), str(one), two, str(one)])
    assert (found.server, found.ca_pem, found.token) == ("https://192.0.2.9", b"ca of a", "t")
    turned = connection.load_merged([two, str(one)])
    assert (turned.server, turned.ca_pem) == ("https://192.0.2.1:6443", b"ca of b")


def test_none_of_several_files(tmp_path: pathlib.Path):
    with pytest.raises(errors.Refused, match="there is none of these kubeconfig files: a, b") as refused:
        connection.load_merged(["a", "b"])
    assert refused.value.reason == "FileNotFound"


def test_what_is_wrong_with_one_of_several_names_it(tmp_path: pathlib.Path):
    broken, odd = tmp_path / "broken", tmp_path / "odd"
    broken.write_text("[]")
    odd.write_bytes(b"\xff")
    good = write(tmp_path, {})
    with pytest.raises(errors.Refused, match=rf"^{broken}: kubeconfig: the document must be a mapping"):
        connection.load_merged([good, str(broken)])
    with pytest.raises(errors.Refused, match=rf"^kubeconfig: {odd} is not UTF-8 text"):
        connection.load_merged([good, str(odd)])
