# SPDX-License-Identifier: Apache-2.0
"""The settings that say which CA signs certificates. Kubernetes' controller manager has the same.

It opens no file: `controllers.certificates.authorities` does. The settings are rows of `assembly.config`.

1. One pair for all signers, or a pair for each: not both. A signer without a pair does not sign.
2. A certificate needs its key, and a key its certificate.
3. Without any of these settings the CA of the data directory signs, if there is one.
4. The old name of the duration is understood as a flag, with a warning. Both names at once are refused.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from handfast.assembly import config
from handfast.cli import output
from handfast.datadir import layout

if TYPE_CHECKING:
    from handfast.assembly import controllers

_F = TypeVar("_F", bound=Callable[..., Any])

_DURATION: Final = "cluster_signing_duration"
_OLDER: Final = f"experimental_{_DURATION}"
_ROWS: Final = {row.key: row for row in config.SETTINGS}


def options(function: _F) -> _F:
    """Adds the older name; the command gives its flags to `take_older_name`."""
    older = click.option(_flag(_OLDER), metavar="DURATION", default=None, help="The older name of it.")
    return older(function)


def take_older_name(flags: dict[str, Any]) -> None:
    """Replace the older name of the duration by its name of today (4)."""
    older = flags.pop(_OLDER)
    if older is None:
        return
    if flags[_DURATION] is not None:
        raise output.Usage(
            f"{_flag(_OLDER)} is the older name of {_flag(_DURATION)}", hint=f"give {_flag(_DURATION)} alone"
        )
    output.warn(f"{_flag(_OLDER)} is deprecated; write {_flag(_DURATION)}")
    flags[_DURATION] = older


def _flag(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def require_pairs(chosen: config.Configuration) -> Mapping[str, tuple[pathlib.Path, pathlib.Path]]:
    """Certificate and key of each signer that has some of its own (1, 2)."""
    single = {signer: pair for word, signer in config.SIGNERS.items() if (pair := _pair(chosen, word)) is not None}
    every = single.pop("", None)
    if every is not None and single:
        raise output.Usage(
            "cannot specify --cluster-signing-{cert,key}-file and other --cluster-signing-*-file flags at the same time",
            hint="give one pair for all signers, or one for each",
        )
    return single if every is None else dict.fromkeys(_signers(), every)


def _signers() -> list[str]:
    return [signer for signer in config.SIGNERS.values() if signer]


def signing(chosen: config.Configuration, place: layout.Layout) -> controllers.Signing | None:
    """What the settings say; None where nothing can be signed with."""
    from handfast.assembly import controllers
    from handfast.controllers.certificates import authorities

    longest, days = chosen.cluster_signing_duration, chosen.ledger_retention_days
    single = require_pairs(chosen)
    if single:
        files = {
            signer: authorities.Files(certificate=certificate, key=key) for signer, (certificate, key) in single.items()
        }
        return controllers.Signing(files=files, longest=longest, ledger_days=days)
    # 3. else the CA of the data directory
    if not (place.ca_certificate.exists() and place.ca_key.exists()):
        return None
    own = authorities.Files(certificate=place.ca_certificate, key=place.ca_key, bundle=True)
    return controllers.Signing(files=dict.fromkeys(_signers(), own), longest=longest, ledger_days=days)


def _pair(chosen: config.Configuration, word: str) -> tuple[pathlib.Path, pathlib.Path] | None:
    rows = [_ROWS[f"clusterSigning{word}{end}"] for end in ("CertFile", "KeyFile")]
    certificate, key = (getattr(chosen, row.field) for row in rows)
    # 2. a certificate and its key go together
    if (certificate is None) != (key is None):
        there, missing = (row.flag for row in (rows if key is None else rows[::-1]))
        raise output.Usage(f"{there} is given without {missing}", hint="a certificate and its key go together")
    return None if certificate is None else (pathlib.Path(certificate).absolute(), pathlib.Path(key).absolute())
