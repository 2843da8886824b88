# SPDX-License-Identifier: Apache-2.0
"""Keeps the digest of a pool's secret in a bootstrap directory, for machines that come before the cluster does.

The file is the Secret that a cluster would have: apply it there, and the same secret goes on. The text is nowhere kept.

1. The directory is this user's, and nobody else can write to it. The file is 0600.
2. A secret that is there is replaced only where somebody says so, and goes on until then: machines in flight have it.
"""

from __future__ import annotations

import datetime
import pathlib
from typing import Any, Final

import yaml

from handfast import errors
from handfast.api import objects
from handfast.api.codec import yaml_document
from handfast.rules.machine_config import ignition_secrets
from handfast.runtime import files

_MAX_BYTES: Final = 1 << 20


def keep(directory: pathlib.Path, pool: str, text: str, until: datetime.datetime | None) -> pathlib.Path:
    """Have this text be the secret of a pool; one that is there counts until this instant, and None replaces none."""
    # 1. a directory that is ours alone
    files.create_directory(directory)
    files.require_own_directory(directory)
    document: dict[str, Any] = ignition_secrets.for_pool(pool, text)
    path = directory / f"{objects.metadata(document)['name']}.yaml"
    if path.exists():
        there = _read(path)
        # 2. only on demand
        if until is None:
            raise errors.Refused(
                f"{path}: the pool {pool} has a secret already, whose text is nowhere kept",
                reason="IgnitionSecretExists",
                hint="--rotate makes another: the one before goes on for the --overlap",
            )
        document = there | {"data": {**there["data"], **ignition_secrets.rotated(there, text, until)["data"]}}
    files.write_atomically(path, yaml.safe_dump(document, sort_keys=False).encode("ascii"))
    return path


def _read(path: pathlib.Path) -> dict[str, Any]:
    try:
        document, _ = yaml_document.load(files.read_private(path, limit=_MAX_BYTES))
    except errors.Refused as refused:
        raise errors.Refused(f"{path}: {refused.message}", reason=refused.reason) from None
    if not isinstance(document, dict) or not ignition_secrets.read(document):
        raise errors.Refused(f"{path} is no secret of a pool", reason="SecretTaken", hint="move it away")
    return document
