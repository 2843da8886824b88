# SPDX-License-Identifier: Apache-2.0
"""The verbs of the Kubernetes API on documents.

A resource is anything with group, version, plural and namespaced: a row of `api.kinds` or a `Resource`. Following
changes is in `watch`; nothing here retries, or remembers more than which odd objects were told of.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar, get_args

import msgspec

from handfast import errors
from handfast.api import objects, status
from handfast.client import partial
from handfast.client import transport as transports

T = TypeVar("T")

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"

# Servers that do not know the metadata-only form answer whole objects, which decode to the same parts.
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

BACKGROUND = "Background"
FOREGROUND = "Foreground"
ORPHAN = "Orphan"

PAGE = 500


class Addressable(Protocol):
    """What it takes to write a path."""

    @property
    def group(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def plural(self) -> str: ...
    @property
    def namespaced(self) -> bool: ...


class Resource(msgspec.Struct, frozen=True):
    """A resource that is not in the table of kinds; those that are have their names in `api.resources`."""

    group: str
    version: str
    plural: str
    namespaced: bool


class ListMeta(msgspec.Struct, rename="camel"):
    """What a list says of itself."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")
    remaining_item_count: int | None = None


class Listing(msgspec.Struct, Generic[T]):
    """A list, or one page of it."""

    metadata: ListMeta
    # Go writes a list of nothing as null, and Kubernetes does so for Secrets, for one.
    listed: list[T] | None = msgspec.field(name="items")

    @property
    def items(self) -> list[T]:
        return self.listed or []


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Which objects of a resource: of one namespace or all, with selectors or without."""

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""

    def params(self) -> dict[str, str]:
        pairs = (("labelSelector", self.label_selector), ("fieldSelector", self.field_selector))
        return {name: value for name, value in pairs if value}


EVERYTHING = Scope()

_documents = msgspec.json.Decoder(dict[str, Any])
_document_lists = msgspec.json.Decoder(Listing[dict[str, Any]])
_raw_lists = msgspec.json.Decoder(Listing[msgspec.Raw])


def path(resource: Addressable, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """`/apis/GROUP/VERSION/namespaces/NS/PLURAL/NAME/SUBRESOURCE`, as far as given."""
    parts = ["/apis", resource.group, resource.version] if resource.group else ["/api", resource.version]
    if namespace and resource.namespaced:
        parts += ["namespaces", urllib.parse.quote(namespace, safe="")]
    parts.append(resource.plural)
    # RBAC names hold colons, which may stay as they are; anything else that is special is quoted.
    parts += [urllib.parse.quote(part, safe=":") for part in (name, subresource) if part]
    return "/".join(parts)


class _MissingOk:
    """A block that ends quietly where the server says NotFound."""

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return isinstance(error, status.StatusError) and error.reason == "NotFound"


# For whoever is done, or has nothing to do, once an object is gone.
MISSING_OK = _MissingOk()


class _Named(msgspec.Struct):
    name: str = ""


class _Resources(msgspec.Struct):
    """An APIResourceList, as far as it is read."""

    resources: list[_Named] = []


class _Version(msgspec.Struct):
    version: str = ""


class _Group(msgspec.Struct, rename="camel"):
    """An APIGroup, as far as it is read."""

    versions: list[_Version] = []
    preferred_version: _Version = msgspec.field(default_factory=_Version)


_resources = msgspec.json.Decoder(_Resources)
_groups = msgspec.json.Decoder(_Group)


class Client:
    """The verbs, over one transport."""

    def __init__(self, transport: transports.Transport) -> None:
        self.transport = transport
        self.oddities = partial.Oddities()

    async def get(
        self, resource: Addressable, name: str, *, namespace: str = "", subresource: str = "", metadata: bool = False
    ) -> objects.Document:
        """One object; with `metadata` only its metadata."""
        at = path(resource, namespace=namespace, name=name, subresource=subresource)
        return _document(at, await self.transport.request("GET", at, accept=METADATA if metadata else JSON))

    async def find(
        self, resource: Addressable, name: str, *, namespace: str = "", metadata: bool = False
    ) -> objects.Document | None:
        """One object as by `get`, or None if it is not there."""
        with MISSING_OK:
            return await self.get(resource, name, namespace=namespace, metadata=metadata)
        return None

    async def serves(self, resource: Addressable) -> bool:
        """Whether the server has this kind, by its discovery document; where that cannot be read it is taken to have it."""
        try:
            body = await self.transport.request("GET", path(resource).rpartition("/")[0])
            return resource.plural in {each.name for each in _resources.decode(body).resources}
        except status.StatusError as error:
            return error.code != 404
        except (errors.Refused, errors.Unavailable, *partial.UNREADABLE):
            return True

    async def preferred(self, resource: Addressable, versions: Sequence[str]) -> Addressable | None:
        """The resource in the one of these versions that the server prefers; None where it serves it in none of them.

        Where the server does not say what it has, it is the first of them.
        """
        for version in await self._by_preference(resource.group, versions):
            row = Resource(resource.group, version, resource.plural, resource.namespaced)
            if await self.serves(row):
                return row
        return None

    async def _by_preference(self, group: str, versions: Sequence[str]) -> Sequence[str]:
        """Those of the versions that the server has of a group, its preferred one first."""
        try:
            there = _groups.decode(await self.transport.request("GET", f"/apis/{group}"))
        except status.StatusError as error:
            return () if error.code == 404 else versions
        except (errors.Refused, errors.Unavailable, *partial.UNREADABLE):
            return versions
        served = {row.version for row in there.versions}
        have = [version for version in versions if version in served]
        return sorted(have, key=lambda version: version != there.preferred_version.version)

    async def view(
        self,
        resource: Addressable,
        name: str,
        decoder: msgspec.json.Decoder[T],
        *,
        namespace: str = "",
        metadata: bool = False,
    ) -> T:
        """One object as `decoder` sees it."""
        at = path(resource, namespace=namespace, name=name)
        return _decoded(at, await self.transport.request("GET", at, accept=METADATA if metadata else JSON), decoder)

    async def list(
        self, resource: Addressable, scope: Scope = EVERYTHING, *, metadata: bool = False
    ) -> Sequence[objects.Document]:
        """Every object in scope."""
        found: list[objects.Document] = []
        async for page in self.pages(resource, scope, _document_lists, metadata=metadata):
            found += page.items
        return found

    async def pages(
        self,
        resource: Addressable,
        scope: Scope,
        decoder: msgspec.json.Decoder[Listing[T]],
        *,
        metadata: bool = False,
        page_size: int = PAGE,
    ) -> AsyncIterator[Listing[T]]:
        """Every object in scope, one page in memory at a time; the last page carries the version to watch from.

        Objects that `decoder` does not take are left out.
        """
        at = path(resource, namespace=scope.namespace)
        params = {**scope.params(), "limit": str(page_size)}
        while True:
            body = await self.transport.request("GET", at, params=params, accept=METADATA_LIST if metadata else JSON)
            try:
                page = decoder.decode(body)
            except msgspec.ValidationError:
                page = self._decodable(resource, body, decoder)
            yield page
            if not page.metadata.continue_:
                return
            params["continue"] = page.metadata.continue_

    async def count(self, resource: Addressable, scope: Scope = EVERYTHING) -> int:
        """How many objects are in scope, from a page of one and what its list says is left. Not with selectors: then lists do not say."""
        params = {**scope.params(), "limit": "1"}
        at = path(resource, namespace=scope.namespace)
        body = await self.transport.request("GET", at, params=params, accept=METADATA_LIST)
        page = _decoded(at, body, _raw_lists)
        return len(page.items) + (page.metadata.remaining_item_count or 0)

    def _decodable(self, resource: Addressable, body: bytes, decoder: msgspec.json.Decoder[Listing[T]]) -> Listing[T]:
        """A page again, object by object."""
        page = _raw_lists.decode(body)
        view: msgspec.json.Decoder[T] = msgspec.json.Decoder(get_args(decoder.type)[0])
        items: list[T] = []
        for item in page.items:
            try:
                items.append(view.decode(item))
            except msgspec.DecodeError as error:
                self.oddities.skip(resource.plural, partial.identify(item), error)
        return Listing(page.metadata, items)

    async def create(
        self,
        resource: Addressable,
        document: Mapping[str, Any],
        *,
        namespace: str = "",
        name: str = "",
        subresource: str = "",
        dry_run: bool = False,
    ) -> objects.Document:
        """POST; with `name` and `subresource` to a subresource such as `token` or `eviction`.

        `dry_run`: it is judged as if it were made, and nothing is stored.
        """
        at = path(resource, namespace=namespace, name=name, subresource=subresource)
        return await self._write("POST", at, document, params={"dryRun": "All"} if dry_run else None)

    async def update(
        self, resource: Addressable, document: Mapping[str, Any], *, subresource: str = ""
    ) -> objects.Document:
        """PUT to where the document's own name and namespace say."""
        meta = document["metadata"]
        at = path(resource, namespace=meta.get("namespace", ""), name=meta["name"], subresource=subresource)
        return await self._write("PUT", at, document)

    async def update_status(self, resource: Addressable, document: Mapping[str, Any]) -> objects.Document:
        return await self.update(resource, document, subresource="status")

    async def replace(
        self,
        resource: Addressable,
        name: str,
        item: msgspec.Struct,
        decoder: msgspec.json.Decoder[T],
        *,
        namespace: str = "",
        subresource: str = "",
    ) -> T:
        """PUT of a view that is whole; what comes back as `decoder` sees it."""
        at = path(resource, namespace=namespace, name=name, subresource=subresource)
        return _decoded(at, await self.transport.request("PUT", at, body=msgspec.json.encode(item)), decoder)

    async def patch(
        self,
        resource: Addressable,
        name: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        content_type: str = MERGE_PATCH,
        namespace: str = "",
        subresource: str = "",
        params: Mapping[str, str] | None = None,
        metadata: bool = False,
    ) -> objects.Document:
        """PATCH; with `metadata` only the metadata of the result comes back."""
        at = path(resource, namespace=namespace, name=name, subresource=subresource)
        accept = METADATA if metadata else JSON
        return await self._write("PATCH", at, patch, content_type=content_type, params=params, accept=accept)

    async def delete(
        self,
        resource: Addressable,
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        resource_version: str = "",
        propagation: str = "",
        grace_seconds: int | None = None,
    ) -> objects.Document:
        """DELETE, only if the object still has this uid and resource version, where given."""
        pairs = (("uid", uid), ("resourceVersion", resource_version))
        preconditions = {key: value for key, value in pairs if value}
        options = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            **({"preconditions": preconditions} if preconditions else {}),
            **({"propagationPolicy": propagation} if propagation else {}),
            **({"gracePeriodSeconds": grace_seconds} if grace_seconds is not None else {}),
        }
        return await self._write("DELETE", path(resource, namespace=namespace, name=name), options)

    async def delete_collection(
        self, resource: Addressable, scope: Scope, *, propagation: str = BACKGROUND
    ) -> objects.Document:
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        return await self._write("DELETE", path(resource, namespace=scope.namespace), options, params=scope.params())

    async def _write(
        self,
        method: str,
        at: str,
        document: Any,
        *,
        content_type: str = JSON,
        params: Mapping[str, str] | None = None,
        accept: str = JSON,
    ) -> objects.Document:
        body = msgspec.json.encode(document)
        answer = await self.transport.request(
            method, at, params=params, body=body, content_type=content_type, accept=accept
        )
        return _document(at, answer)


def _decoded(at: str, body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(body)
    except partial.UNREADABLE as error:
        raise errors.Unavailable(f"{at} cannot be decoded: {error}", reason="BadAnswer") from error


def _document(at: str, body: bytes) -> objects.Document:
    try:
        return _documents.decode(body)
    except partial.UNREADABLE as error:
        raise errors.Unavailable(f"{at}: the answer is no object: {error}", reason="BadAnswer") from error
