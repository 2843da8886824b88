# SPDX-License-Identifier: Apache-2.0
"""The flags that say with which CA certificates are signed, as Kubernetes' controller manager has them.

It opens no file: `controllers.signing_authorities` does.

1. One pair for all signers, or a pair for each: not both. A signer without a pair does not sign.
2. A certificate needs its key, and a key its certificate.
3. Without any of these flags the CA of the data directory signs, if there is one.
4. The old name of the duration is understood, with a warning; both at once are refused.
"""

from __future__ import annotations

import datetime
import pathlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from handfast.assembly import layout
from handfast.cli import output, token_input

if TYPE_CHECKING:
    from handfast.assembly import controllers

_F = TypeVar("_F", bound=Callable[..., Any])

_DEFAULT: Final = "8760h"
_SHORTEST: Final = datetime.timedelta(minutes=10)
# What is between `--cluster-signing-` and `-cert-file`, and the signer that it is about.
_SIGNERS: Final = {
    "kubelet-serving": "kubernetes.io/kubelet-serving",
    "kubelet-client": "kubernetes.io/kube-apiserver-client-kubelet",
    "kube-apiserver-client": "kubernetes.io/kube-apiserver-client",
    "legacy-unknown": "kubernetes.io/legacy-unknown",
}
_FIELDS: Final = tuple(
    f"cluster_signing_{word}{end}".replace("-", "_")
    for word in ("", *(f"{signer}_" for signer in _SIGNERS))
    for end in ("cert_file", "key_file")
)
_DURATIONS: Final = ("cluster_signing_duration", "experimental_cluster_signing_duration")


def options(function: _F) -> _F:
    """Adds the flags; the command gets them by their names, and gives them to `taken`."""
    function = click.option(
        "--experimental-cluster-signing-duration", metavar="DURATION", default=None, help="The older name of it."
    )(function)
    function = click.option(
        "--cluster-signing-duration",
        metavar="DURATION",
        default=None,
        help=f"How long signed certificates live at most, as in 90m, 24h or 365d.  [default: {_DEFAULT}]",
    )(function)
    for field in reversed(_FIELDS):
        function = click.option(f"--{field.replace('_', '-')}", type=click.Path(), default=None, help=_about(field))(
            function
        )
    return function


def _about(field: str) -> str:
    what = "The CA certificate" if field.endswith("cert_file") else "The key of the CA"
    word = field.removeprefix("cluster_signing_").removesuffix("cert_file").removesuffix("key_file").rstrip("_")
    if not word:
        return f"{what} that signs requests for all signers.  [default: that of --dir]"
    return f"{what} that signs requests for {_SIGNERS[word.replace('_', '-')]}."


def taken(flags: dict[str, Any]) -> dict[str, str]:
    """These flags out of all that a command was given, those that were left out left out."""
    found = {field: flags.pop(field, None) for field in (*_FIELDS, *_DURATIONS)}
    return {field: value for field, value in found.items() if value is not None}


def signing(given: Mapping[str, str], place: layout.Layout, ledger_days: int = 90) -> controllers.Signing | None:
    """What the flags say; None where nothing can be signed with."""
    from handfast.assembly import controllers
    from handfast.controllers import signing_authorities

    longest = duration(given)
    # 1.
    every = _pair(given, "")
    single = {signer: pair for word, signer in _SIGNERS.items() if (pair := _pair(given, word)) is not None}
    if every is not None and single:
        raise output.Usage(
            "cannot specify --cluster-signing-{cert,key}-file and other --cluster-signing-*-file flags at the same time",
            hint="give one pair for all signers, or one for each",
        )
    if every is not None:
        single = dict.fromkeys(_SIGNERS.values(), every)
    if single:
        return controllers.Signing(
            files={
                signer: signing_authorities.Files(certificate=certificate, key=key)
                for signer, (certificate, key) in single.items()
            },
            longest=longest,
            ledger_days=ledger_days,
        )
    # 3.
    if not (place.ca_certificate.exists() and place.ca_key.exists()):
        return None
    own = signing_authorities.Files(certificate=place.ca_certificate, key=place.ca_key, bundle=True)
    return controllers.Signing(files=dict.fromkeys(_SIGNERS.values(), own), longest=longest, ledger_days=ledger_days)


def _pair(given: Mapping[str, str], word: str) -> tuple[pathlib.Path, pathlib.Path] | None:
    flags = [f"--cluster-signing-{word}{'-' if word else ''}{end}" for end in ("cert-file", "key-file")]
    found = [given.get(flag[2:].replace("-", "_")) for flag in flags]
    # 2.
    if (found[0] is None) != (found[1] is None):
        there, missing = flags if found[1] is None else flags[::-1]
        raise output.Usage(f"{there} is given without {missing}", hint="a certificate and its key go together")
    if found[0] is None or found[1] is None:
        return None
    return pathlib.Path(found[0]).absolute(), pathlib.Path(found[1]).absolute()


def duration(given: Mapping[str, str]) -> datetime.timedelta:
    """How long certificates live at most (4)."""
    flags = [(f"--{field.replace('_', '-')}", given[field]) for field in _DURATIONS if field in given]
    if len(flags) > 1:
        raise output.Usage(f"{flags[1][0]} is the older name of {flags[0][0]}", hint=f"give {flags[0][0]} alone")
    flag, text = flags[0] if flags else ("--cluster-signing-duration", _DEFAULT)
    if flag == "--experimental-cluster-signing-duration":
        output.warn(f"{flag} is deprecated; write --cluster-signing-duration")
    found = token_input.parse_ttl(text, flag)
    if found is None or found < _SHORTEST:
        raise output.Usage(f'{flag}: "{text}" is too short', hint="give at least 10m, as in 24h or 365d")
    return found
