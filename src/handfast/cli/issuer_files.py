# SPDX-License-Identifier: Apache-2.0
"""The three files of a mesh's issuer, as they are typed: all of them, or none. It judges no issuer.

A certificate without its key, or without whom to believe, is no issuer.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from handfast.cli import output
from handfast.runtime import files

if TYPE_CHECKING:
    from handfast.rules.mesh import issuer

_MAX_BYTES: Final = 1 << 20
NAMES: Final = ("trust_anchors", "issuer_cert", "issuer_key")


def chosen(flags: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The paths of trust anchors, issuer and key; None where none was typed."""
    missing = [f"--{name.replace('_', '-')}" for name in NAMES if flags[name] is None]
    if len(missing) == len(NAMES):
        return None
    if missing:
        raise output.Usage(
            f"{missing[0]} is missing", hint="--trust-anchors, --issuer-cert and --issuer-key go together"
        )
    return tuple(str(flags[name]) for name in NAMES)


def read(flags: Mapping[str, Any]) -> issuer.Material | None:
    """What is in them, in the forms in which it is stored; None where none was typed."""
    from handfast.rules.mesh import issuer

    paths = chosen(flags)
    if paths is None:
        return None
    anchors, certificate, key = (_read(path, name) for path, name in zip(paths, NAMES, strict=True))
    return issuer.stored(issuer.Material(certificate, key, anchors))


def _read(path: str, name: str) -> bytes:
    with files.otherwise(f"name another file with --{name.replace('_', '-')}"):
        return files.read_given(pathlib.Path(path), limit=_MAX_BYTES)
