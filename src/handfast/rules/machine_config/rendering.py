# SPDX-License-Identifier: Apache-2.0
"""A rendering: the MachineConfigs of a pool as one, with a digest of what is in it as its name. Nothing is written here.

1. The name is `rendered-<pool>-<32 hexadecimal digits>`: a digest of the pool, the merged spec and the credential's digest. The same
   objects give the same name, in whatever order they come.
2. The bootstrap credential is an input by digest and an annotation, so that a new one gives a new name. It is never in the object.
3. `machines.handfast.dev/configuration` is the digest of the spec alone: two renderings with the same one differ in the credential.
4. A pool without MachineConfigs has a rendering too: its machines need the credential.

| who | holding | tries | stopped by | shown in tests/unit/rules/machine_config/test_rendering.py |
|---|---|---|---|---|
| whoever may read MachineConfigs | that right | the bootstrap credential of the rendering | 2 | test_no_rendering_shows_the_credential |
| who may change MachineConfigs | that right | other contents under the name that machines have | 1: the digest is compared | test_a_rendering_that_was_changed_is_not_read |
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from handfast import errors
from handfast.api import machine_config_kinds
from handfast.rules.machine_config import ignition, merging, names

NOT_A_RENDERING: Final = "NotARendering"
_DIGITS: Final = 32
_NAME: Final = re.compile(rf"rendered-(?P<pool>.+)-[0-9a-f]{{{_DIGITS}}}")
_CREDENTIAL: Final = re.compile(r"(?P<kind>[a-z-]+) (?P<digest>sha256:[0-9a-f]{64})")
_encoder: Final = msgspec.json.Encoder()


class Credential(Protocol):
    """What of a bootstrap credential goes into a rendering."""

    @property
    def kind(self) -> str: ...
    @property
    def digest(self) -> str: ...


@dataclass(frozen=True)
class Rendered:
    """What a rendered MachineConfig says."""

    name: str
    pool: str
    config: ignition.Config
    os_image_url: str
    kernel_arguments: tuple[str, ...]
    extensions: tuple[str, ...]
    fips: bool
    kernel_type: str
    credential_kind: str
    credential_digest: str
    configuration_digest: str


def render(pool: str, configs: Iterable[Mapping[str, Any]], credential: Credential, version: str) -> dict[str, Any]:
    """The rendered MachineConfig of a pool; `configs` are the MachineConfigs that it selects."""
    return of_pieces(pool, merging.read_all(configs), credential, version)


def of_pieces(pool: str, pieces: Iterable[merging.Piece], credential: Credential, version: str) -> dict[str, Any]:
    """The same from MachineConfigs that were read before: reading is the larger part of the work."""
    spec = merging.merge(pieces)
    # 3. of the spec alone
    configuration = _digest(_encoder.encode(spec))
    annotations = {
        names.RENDERED_BY: version,
        # 2. by digest
        names.CREDENTIAL: f"{credential.kind} {credential.digest}",
        names.CONFIGURATION: configuration,
    }
    return {
        "apiVersion": machine_config_kinds.MACHINE_CONFIG.api_version,
        "kind": machine_config_kinds.MACHINE_CONFIG.kind,
        "metadata": {"name": _name(pool, configuration, annotations[names.CREDENTIAL]), "annotations": annotations},
        "spec": msgspec.to_builtins(spec),
    }


def pool_of(name: str) -> str | None:
    """The pool that a name of a rendering names; None: it is no such name."""
    match = _NAME.fullmatch(name)
    return None if match is None else match["pool"]


def read(document: Mapping[str, Any]) -> Rendered:
    """What a rendered MachineConfig says; an error if it is none, or is not the one that its name says."""
    metadata = document["metadata"]
    name, annotations = metadata["name"], metadata.get("annotations") or {}
    pool = pool_of(name)
    credential = _CREDENTIAL.fullmatch(annotations.get(names.CREDENTIAL, ""))
    if pool is None or credential is None:
        sentence = f"MachineConfig {name} is no rendering: its name is another, or it has no {names.CREDENTIAL}"
        raise errors.Refused(sentence, reason=NOT_A_RENDERING)
    # 1. the name is a digest of what it has
    spec = merging.merge([dataclasses.replace(merging.read(document), is_generated=False)])
    configuration = _digest(_encoder.encode(spec))
    if name != _name(pool, configuration, annotations[names.CREDENTIAL]):
        raise errors.Refused(
            f"MachineConfig {name} was changed after it was rendered: its name is a digest of what it had",
            reason=NOT_A_RENDERING,
            hint="Delete it: it is rendered again.",
        )
    return Rendered(
        name=name,
        pool=pool,
        config=spec.config,
        os_image_url=spec.os_image_url,
        kernel_arguments=tuple(spec.kernel_arguments or ()),
        extensions=tuple(spec.extensions or ()),
        fips=bool(spec.fips),
        kernel_type=spec.kernel_type,
        credential_kind=credential["kind"],
        credential_digest=credential["digest"],
        configuration_digest=configuration,
    )


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _name(pool: str, configuration: str, credential: str) -> str:
    digits = hashlib.sha256(f"{pool}\0{configuration}\0{credential}".encode()).hexdigest()[:_DIGITS]
    return f"rendered-{pool}-{digits}"
