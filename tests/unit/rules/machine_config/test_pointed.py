# SPDX-License-Identifier: Apache-2.0
"""Where a pointer leads: one server, its CA, and nothing else."""

import hashlib
import json

import pytest

from handfast import errors
from handfast.rules.machine_config import pointed, pointer

CA = b"-----BEGIN CERTIFICATE-----\nx\n"
URL = "https://192.0.2.1:22623/config/worker"


def text(**changes):
    document = pointer.document(URL, CA, "s3cret")
    return json.dumps({**document, **changes}).encode()


def test_what_a_pointer_of_ours_says_is_read():
    read = pointed.read(text())
    assert (read.url, read.ca, dict(read.headers)) == (URL, CA, {"Authorization": "Bearer s3cret"})
    assert "s3cret" not in repr(read)
    read.require(b"anything")


def test_a_configuration_that_replaces_is_one_too_and_its_hash_counts():
    document = pointer.document(URL, CA)
    source = document["ignition"]["config"].pop("merge")[0]
    source["verification"] = {"hash": f"sha256-{hashlib.sha256(b'x').hexdigest()}"}
    document["ignition"]["config"]["replace"] = source
    read = pointed.read(json.dumps(document).encode())
    assert dict(read.headers) == {}
    read.require(b"x")
    with pytest.raises(errors.Refused, match="does not have the contents that its verification"):
        read.require(b"y")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{", "is no JSON"),
        (b"{}", "names 0 configurations"),
        (text(storage={"files": [{"path": "/a"}]}), "has storage.files: only Ignition itself can do that"),
        (text(systemd={"units": [{"name": "a.service", "mask": True}]}), "has systemd.units"),
        (text(passwd={"users": [{"name": "core"}]}), "has passwd.users"),
        (
            text(ignition={"version": "3.1.0", "config": {"merge": [{"source": URL}, {"source": URL}]}}),
            "names 2 config",
        ),
        (
            text(ignition={"version": "3.1.0", "config": {"merge": [{"source": "http://x/?s"}]}}),
            'leads to "http://x/":',
        ),
        (text(ignition={"version": "3.1.0", "config": {"merge": [{"source": URL}]}}), "names no CA"),
        (
            text(ignition={"version": "3.1.0", "config": {"merge": [{"source": URL}]}, "security": {"tls": {}}}),
            "names no CA",
        ),
    ],
)
def test_what_is_no_pointer_is_refused_by_name(data, words):
    with pytest.raises(errors.Refused) as caught:
        pointed.read(data)
    assert words in caught.value.message
