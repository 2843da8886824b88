# SPDX-License-Identifier: Apache-2.0
"""The files of a start-up, read by the proxy that it was for."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest

from handfast import errors
from handfast.pki import keys, names, pem, requests
from handfast.proxy import start_up
from handfast.rules.mesh import proxy_environment
from tests.unit.proxy.test_credentials import OWN, World


@pytest.fixture
def world(tmp_path: pathlib.Path) -> World:
    return World(tmp_path)


def test_a_key_that_others_may_read_is_refused(world):
    path = pathlib.Path(world.files.key_file)
    path.chmod(0o444)
    with pytest.raises(errors.Refused, match=proxy_environment.KEY_FILE):
        start_up.load(world.files)


WRONG: dict[str, Callable[[keys.PrivateKey], tuple[list[str], keys.PrivateKey]]] = {
    "another name": lambda key: (["api.shop.example"], key),
    "one name more": lambda key: ([OWN, "api.shop.example"], key),
    "another key": lambda _: ([OWN], keys.generate()),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_request_for_another_name_or_key_is_refused(world, wrong):
    key = keys.private_from_der(pathlib.Path(world.files.key_file).read_bytes())
    dns, signing = wrong(key)
    request = requests.build(names.Subject(), names.make_sans(dns=dns), signing)
    path = pathlib.Path(world.files.csr_file)
    path.unlink()
    path.write_bytes(pem.one(request, pem.CERTIFICATE_REQUEST))
    with pytest.raises(errors.Refused, match=proxy_environment.CSR_FILE) as refused:
        start_up.load(world.files)
    assert refused.value.reason == "WrongRequestFile"


@pytest.mark.parametrize("word", ["key_file", "csr_file", "anchors_file"])
def test_a_file_that_is_nonsense_or_not_there_is_named(world, word):
    path = pathlib.Path(getattr(world.files, word))
    path.chmod(0o600)
    for act in (lambda: path.write_bytes(b"nonsense"), path.unlink):
        act()
        variable = {"key_file": "KEY", "csr_file": "CSR", "anchors_file": "TRUST_ANCHORS"}[word]
        with pytest.raises(errors.Refused, match=f"^LINKERD2_PROXY_IDENTITY_{variable}_FILE: "):
            start_up.load(world.files)


def test_nothing_secret_is_printed(world):
    material = start_up.load(world.files)
    assert "csr" not in repr(material)
