# SPDX-License-Identifier: Apache-2.0
"""YAML bodies: refused, or a document that JSON can say, and that is read again as the same."""

from __future__ import annotations

import contextlib

import msgspec

from handfast import errors
from handfast.api.codec import decode, yaml_document
from handfast.bootstrap import kubeconfig
from tests.fuzz import promises


def _read(data: bytes) -> None:
    # A kubeconfig is read by another reader.
    with contextlib.suppress(UnicodeDecodeError, errors.Refused):
        kubeconfig.load(data.decode())
    document, repeated = decode.document_and_duplicates(data, decode.YAML)
    promises.require(len(repeated) <= yaml_document.MAX_DUPLICATES, "too many repeated keys are told")
    text = msgspec.json.encode(document)
    promises.require(decode.document(text) == document, "what YAML says is not what its JSON says")
    promises.require(decode.document(text, decode.YAML) == document, "JSON sent as YAML is another document")


run = promises.refusing(_read)
