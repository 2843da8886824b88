# SPDX-License-Identifier: Apache-2.0
"""The metadata of typed views."""

from __future__ import annotations

import msgspec

from handfast.api import metadata


def test_the_key_is_namespace_and_name():
    document = {"name": "n", "namespace": "s", "resourceVersion": "7", "managedFields": [{}]}
    meta = msgspec.convert(document, metadata.Meta)
    assert (meta.key, meta.resource_version, meta.deletion_timestamp) == (("s", "n"), "7", None)
    assert metadata.Meta(name="n").key == ("", "n")
