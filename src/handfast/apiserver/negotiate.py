# SPDX-License-Identifier: Apache-2.0
"""The Accept header -> in which shape to answer: as it is, a Table, or metadata only; and under which media type.

YAML is answered with the same bytes: JSON is YAML, and stored bytes leave as they are. It chooses among what this server can give and refuses with 406 otherwise; `verbs.encode` encodes.
"""

from __future__ import annotations

import functools

import msgspec

from handfast.api import status

OBJECT = "object"
TABLE = "Table"
PARTIAL = "PartialObjectMetadata"
PARTIAL_LIST = "PartialObjectMetadataList"
DISCOVERY = "APIGroupDiscoveryList"

JSON = "application/json"
_PROTOBUF = "application/vnd.kubernetes.protobuf"
YAML = "application/yaml"
_TYPES = {JSON: JSON, YAML: YAML, "application/*": JSON, "*/*": JSON}
_WRAPPED = (
    ", application/json;as=Table;v=v1;g=meta.k8s.io, application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
)
_SHAPES = {
    (TABLE, "meta.k8s.io", "v1"),
    (TABLE, "meta.k8s.io", "v1beta1"),
    (PARTIAL, "meta.k8s.io", "v1"),
    (PARTIAL_LIST, "meta.k8s.io", "v1"),
    (DISCOVERY, "apidiscovery.k8s.io", "v2"),
}


class Shape(msgspec.Struct, frozen=True):
    """What to answer with; `version` is the version of the wrapping kind, `media` what the bytes are called.

    `typeless`: they would rather have protobuf, in which items of a list have neither kind nor apiVersion.
    """

    kind: str
    version: str = "v1"
    media: str = JSON
    typeless: bool = False


PLAIN = Shape(OBJECT)


@functools.lru_cache(maxsize=256)
def _clauses(header: str) -> tuple[tuple[str, dict[str, str]], ...]:
    """The media types of an Accept header, most wanted first."""
    clauses = []
    for position, clause in enumerate(header.split(",")):
        media, *parameters = (part.strip() for part in clause.split(";"))
        values = dict(part.split("=", 1) for part in parameters if "=" in part)
        try:
            quality = float(values.pop("q", "1"))
        except ValueError:
            quality = 0.0
        if quality > 0:
            clauses.append((-quality, position, media.lower(), values))
    return tuple((media, values) for _, _, media, values in sorted(clauses, key=lambda row: row[:2]))


@functools.lru_cache(maxsize=256)
def shape(header: str, *, plain: bool = False) -> Shape:
    """The first shape the client wants that this server has; `plain`: what is asked for has no other."""
    if not header:
        return PLAIN
    typeless = False
    for clause, values in _clauses(header):
        media = _TYPES.get(clause)
        if media is None:
            typeless = typeless or clause == _PROTOBUF
            continue
        wanted = values.get("as", "")
        if not wanted:
            return PLAIN if media == JSON else Shape(OBJECT, media=media)
        if not plain and (wanted, values.get("g", ""), values.get("v", "")) in _SHAPES:
            return Shape(wanted, values["v"], media, typeless)
    raise not_acceptable(f"{JSON}, {YAML}{'' if plain else _WRAPPED}")


def not_acceptable(accepted: str) -> status.StatusError:
    return status.StatusError("NotAcceptable", f"only the following media types are accepted: {accepted}")
