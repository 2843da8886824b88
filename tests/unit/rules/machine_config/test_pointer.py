# SPDX-License-Identifier: Apache-2.0
"""The pointer configuration: it is a configuration, says where to ask and what to send, and whom to trust."""

from __future__ import annotations

import base64

from handfast.rules.machine_config import ignition, pointer
from tests.unit.rules import machine_config_cases as cases

URL = "https://10.0.0.1:22623/config/worker"


def test_a_pointer_names_the_source_the_secret_and_the_authority():
    document = pointer.document(URL, b"CA", "abc.def")
    section = document["ignition"]
    assert section["config"]["merge"] == [
        {"source": URL, "httpHeaders": [{"name": "Authorization", "value": "Bearer abc.def"}]}
    ]
    (authority,) = section["security"]["tls"]["certificateAuthorities"]
    assert base64.b64decode(authority["source"].partition(",")[2]) == b"CA"


def test_a_pointer_is_a_configuration():
    for secret in ("", "abc.def"):
        config = ignition.parse(pointer.document(URL, b"CA", secret), cases.WHERE)
        assert set(config.other) == {"ignition.config", "ignition.security"}


def test_a_pointer_without_a_secret_sends_no_header():
    assert pointer.document(URL, b"CA")["ignition"]["config"]["merge"] == [{"source": URL}]
