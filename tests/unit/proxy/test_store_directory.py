# SPDX-License-Identifier: Apache-2.0
"""The store directory: nothing before it is fit, everything with its mode, and nothing after a failure."""

from __future__ import annotations

import os
import pathlib
import stat
from typing import Any

import pytest

from handfast import errors
from handfast.pki import bundles, keys, pem, requests
from handfast.proxy import store_directory
from handfast.rules.mesh import proxy_environment
from handfast.runtime import files, mounts
from tests.unit.pki import making

IDENTITY = "web.shop.sa.linkerd-identity.linkerd.cluster.local"
ROOT = making.ca("root")
FILES = {"key.der", "csr.p8", "trust-anchors.pem", "key.p8", "csr.der"}
SECRET = "not-to-be-printed"


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "store"
    path.mkdir()
    return path


@pytest.fixture
def token(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "token"
    path.write_text(SECRET)
    return path


def environment(directory: object, token: object = "/token") -> proxy_environment.ProxyEnvironment:
    return proxy_environment.ProxyEnvironment(
        name=IDENTITY,
        anchors=bundles.TrustBundle.of([ROOT.der]),
        token_file=str(token),
        store=str(directory),
    )


def refusal(directory: object, token: object, *, memory: bool = False) -> errors.HandfastError:
    with pytest.raises(errors.HandfastError) as refused:
        store_directory.require_ready(environment(directory, token), memory=memory)
    assert SECRET not in refused.value.message
    return refused.value


def listed(directory: pathlib.Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_every_file_is_there_for_its_owner_only(directory):
    written = store_directory.write(environment(directory))
    assert listed(directory) == FILES == set(store_directory.NAMES)
    for path in directory.iterdir():
        status = path.lstat()
        assert stat.S_IMODE(status.st_mode) == 0o400
        assert status.st_uid == os.geteuid()
    assert written.variables() == {
        "LINKERD2_PROXY_IDENTITY_KEY_FILE": str(directory / "key.der"),
        "LINKERD2_PROXY_IDENTITY_CSR_FILE": str(directory / "csr.p8"),
        "LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS_FILE": str(directory / "trust-anchors.pem"),
    }


def test_the_request_has_the_name_as_its_one_critical_san_and_is_the_keys(directory):
    store_directory.write(environment(directory))
    key = keys.private_from_der((directory / "key.der").read_bytes())
    der = (directory / "csr.p8").read_bytes()
    request = requests.parse_der(der)
    assert key.public.kind is keys.Kind.P256
    assert request.public_key_spki == key.public.spki
    assert str(request.subject) == ""
    assert request.sans.texts() == [f"DNS:{IDENTITY}"]
    # The SAN's OID, then TRUE.
    assert bytes.fromhex("0603551d110101ff") in der
    assert (directory / "key.p8").read_bytes() == (directory / "key.der").read_bytes()
    assert (directory / "csr.der").read_bytes() == der
    assert pem.certificates_from_pem((directory / "trust-anchors.pem").read_bytes()) == [ROOT.der]


def test_a_second_start_has_another_key(directory):
    store_directory.write(environment(directory))
    (directory / ".key.der.abc.tmp").write_text("cut short")
    before = (directory / "key.der").read_bytes()
    store_directory.write(environment(directory))
    assert (directory / "key.der").read_bytes() != before
    assert listed(directory) == FILES


def test_a_link_is_replaced_and_not_followed(directory, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (directory / "key.der").symlink_to(victim)
    (directory / "csr.der").symlink_to(tmp_path / "nowhere")
    store_directory.write(environment(directory))
    assert victim.read_text() == "untouched"
    assert not (tmp_path / "nowhere").exists()
    assert not (directory / "key.der").is_symlink()


@pytest.mark.parametrize("survivors", range(5))
def test_nothing_stays_when_a_write_fails(directory, monkeypatch, survivors):
    store_directory.write(environment(directory))
    count = 0
    write = files.write_atomically

    def failing(path: pathlib.Path, data: bytes, **options: Any) -> None:
        nonlocal count
        if count == survivors:
            raise errors.Unavailable(f"cannot write {path}: no space left on device", reason="NoSpace")
        count += 1
        write(path, data, **options)

    monkeypatch.setattr(files, "write_atomically", failing)
    with pytest.raises(errors.Unavailable, match=r"LINKERD2_PROXY_IDENTITY_STORE_DIR: .* no space") as refused:
        store_directory.write(environment(directory))
    assert refused.value.reason == "NoSpace"
    assert listed(directory) == set()


def test_what_cannot_be_replaced_is_an_error_and_leaves_no_key(directory):
    (directory / "csr.p8").mkdir()
    with pytest.raises(errors.HandfastError, match=r"LINKERD2_PROXY_IDENTITY_STORE_DIR: cannot replace .*csr\.p8"):
        store_directory.write(environment(directory))
    assert listed(directory) == {"csr.p8"}


def test_a_directory_for_the_token_means_its_token(directory, token):
    store_directory.require_ready(environment(directory, token), memory=False)
    store_directory.require_ready(environment(directory, token.parent), memory=False)
    assert listed(directory) == set()


@pytest.mark.parametrize(
    ("content", "reason"), [(b"", "EmptyToken"), (b" \n", "EmptyToken"), (b"x" * 20_000, "FileTooLarge")]
)
def test_a_token_that_is_none_is_refused(directory, token, content, reason):
    token.write_bytes(content)
    refused = refusal(directory, token)
    assert refused.reason == reason
    assert refused.message.startswith("LINKERD2_PROXY_IDENTITY_TOKEN_FILE: ")


@pytest.mark.parametrize(
    ("name", "reason"), [("gone", "FileNotFound"), ("pipe", "NotAFile"), ("store", "FileNotFound"), ("x" * 300, None)]
)
def test_a_token_that_cannot_be_read_is_refused(directory, tmp_path, name, reason):
    os.mkfifo(tmp_path / "pipe")
    refused = refusal(directory, tmp_path / name)
    assert reason in {None, refused.reason}
    assert refused.message.startswith("LINKERD2_PROXY_IDENTITY_TOKEN_FILE: cannot read ")


@pytest.mark.parametrize(
    ("path", "reason"),
    [("/proc/self/gone", "FileNotFound"), ("/dev/null", "NotADirectory"), ("/proc/self", None), ("x" * 300, None)],
)
def test_a_directory_that_cannot_be_written_is_refused(token, path, reason):
    refused = refusal(path, token)
    assert reason in {None, refused.reason}
    assert refused.message.startswith("LINKERD2_PROXY_IDENTITY_STORE_DIR: cannot write to ")


MOUNTS = "24 1 {device} / {path} rw,relatime shared:1 - {kind} none rw\n25 1 0:999 / /x rw - tmpfs none rw\n"


def mounted(monkeypatch: pytest.MonkeyPatch, directory: pathlib.Path, kind: str) -> None:
    number = directory.stat().st_dev
    table = directory.parent / "mountinfo"
    table.write_text(MOUNTS.format(device=f"{os.major(number)}:{os.minor(number)}", path=directory.parent, kind=kind))
    monkeypatch.setattr(mounts, "_MOUNTS", table)


def test_a_directory_in_memory_has_no_warning(directory, token, monkeypatch):
    mounted(monkeypatch, directory, "tmpfs")
    assert store_directory.require_ready(environment(directory, token), memory=True) == ()


def test_a_directory_on_a_disk_is_refused_on_request(directory, token, monkeypatch):
    mounted(monkeypatch, directory, "ext4")
    (warning,) = store_directory.require_ready(environment(directory, token), memory=False)
    assert "LINKERD2_PROXY_IDENTITY_STORE_DIR" in warning
    assert "not known to be in memory" in warning
    assert refusal(directory, token, memory=True).reason == "StoreNotInMemory"
    assert listed(directory) == set()
