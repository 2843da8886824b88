# SPDX-License-Identifier: Apache-2.0
"""Resource requests: finds the kind and the verb, and hands the request to the module that carries it out.

1. resource     there is such a kind, and it has the verb                                404, 405
2. shape        the answer can be given as they want it: known before anything is        406
                written
3. body         read within its limits; the caller still stands; it has not too many     400, 401, 403, 408, 413, 415,
                values                                                                   417, 429
4. decode       into a document of the kind                                              400, 415, 422
5. carry out    what the verb says                                                       the module of the verb
6. encode       in the shape of 2

A read has no body: it goes from 2 to 5. The verbs themselves are `reads`, `watch`, `writes`, `patches`, `deletes`, `actions` and
`reviews`. Patches, actions and deletes decode what they get themselves. Callers were authorised before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import aiohttp
import msgspec

from handfast.api import kinds, objects, status
from handfast.api.codec import bounds, decode
from handfast.api.custom import definitions, structural
from handfast.api.schema import structs
from handfast.apiserver import bodies, calls, negotiate, request
from handfast.apiserver import computed as computed_module
from handfast.apiserver import limits as limits_module
from handfast.apiserver.access import standing as standing_module
from handfast.apiserver.state import items
from handfast.apiserver.strategy import custom, strategies
from handfast.apiserver.verbs import actions as actions_module
from handfast.apiserver.verbs import definitions as served_definitions
from handfast.apiserver.verbs import deletes, encode, options, patches, reads, watch, writes
from handfast.apiserver.verbs import reviews as reviews_module
from handfast.runtime import aside as aside_module
from handfast.runtime import clock as clocks
from handfast.serving import answers
from handfast.serving import connection as connection_module

_encode = msgspec.json.Encoder().encode
Answer = Awaitable[answers.Response]
_SHAPES = 512
_REVIEWS = 1024
_REVIEW_BYTES = 1024
_READS = frozenset({"get", "list", "watch"})
# POST to a named object is no verb of its own; nor is PUT or PATCH to a collection.
_NAMED = {"create": False, "update": True, "patch": True}


class Verbs(msgspec.Struct, frozen=True, kw_only=True):
    """Who carries out what."""

    reader: reads.Reader
    writer: writes.Writer
    patcher: patches.Patcher
    deleter: deletes.Deleter
    actions: actions_module.Actions
    reviews: reviews_module.Reviews
    computed: computed_module.Computed
    hub: watch.Hub


class Resources:
    """Answers requests for resources."""

    def __init__(
        self,
        *,
        customs: served_definitions.Customs,
        verbs: Verbs,
        standing: standing_module.Standing,
        limits: limits_module.Limits,
        aside: aside_module.Aside,
        clock: clocks.Clock,
    ) -> None:
        self._customs = customs
        self._table = customs.table
        self._reader = verbs.reader
        self._writer = verbs.writer
        self._patcher = verbs.patcher
        self._deleter = verbs.deleter
        self._actions = verbs.actions
        self._reviews = verbs.reviews
        self._computed = verbs.computed
        self._hub = verbs.hub
        self._standing = standing
        self._limits = limits
        self._body_memory = bodies.BodyMemory(limits)
        self._review_documents: dict[tuple[tuple[str, str], str, str, bytes], objects.Document] = {}
        self._aside = aside
        self._clock = clock
        self._shapes: dict[tuple[str, str, str, str], tuple[kinds.Kind, encode.Shape]] = {}
        self._verbs: dict[str, Callable[[calls.Call, kinds.Kind], Answer]] = {
            "get": self._get,
            "list": self._list,
            "watch": self._watch,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }

    async def answer(self, call: calls.Call) -> answers.Response:
        """Answer what was authorised: 404 where there is no such kind, 405 where it does not have the verb."""
        # 1. resource
        kind = await self._find(call)
        call.kind = kind
        call.aside = self._aside
        info = call.info
        if info.subresource:
            sub = kind.subresource(info.subresource)
            if sub is None:
                raise status.no_such_path()
            allowed = info.verb in sub.verbs
        else:
            allowed = info.verb in kind.verbs and _NAMED.get(info.verb, bool(info.name)) == bool(info.name)
        if not allowed:
            read_only = f"{kind.plural} show what this server does, and can be read only" if kind.is_computed else ""
            raise status.method_not_allowed(read_only)
        # 2. shape. Before anything is written: a 406 must not hide that something was.
        if info.verb not in _READS:
            self._shape(call, kind)
        # 3. to 6. body, decode, carry out, encode: the function of the verb
        answered = await self._verbs[info.verb](call, kind)
        if kind.resource == definitions.RESOURCE and info.verb not in _READS:
            # Whoever defined a kind may ask for it, or what there is, the moment they have the answer.
            await self._customs.fresh()
        if kind.deprecation:
            custom.warn(call, [kind.deprecation])
        return answered

    async def _find(self, call: calls.Call) -> kinds.Kind:
        info = call.info
        kind = self._table.find(info.group, info.version, info.plural)
        if kind is None or (not kind.message and info.verb not in _READS):
            # Custom kinds change while the server runs, perhaps by another one's doing: know the present first.
            if "." in info.group:
                await self._customs.fresh()
                kind = self._table.find(info.group, info.version, info.plural)
            if kind is None:
                raise status.no_such_path()
        if kind.namespaced:
            # Only lists and watches may span namespaces.
            if not info.namespace and (info.name or info.verb not in {"list", "watch", "deletecollection"}):
                raise status.no_such_path()
        elif info.namespace and (kind.resource != ("", "namespaces") or info.namespace != info.name):
            # A Namespace's own path names it as the namespace, too; any other cluster-scoped object has none.
            raise status.no_such_path()
        return kind

    def _shape(self, call: calls.Call, kind: kinds.Kind) -> encode.Shape:
        """The shape to answer in. Most requests ask for the same few, so they are remembered."""
        key = (
            kind.prefix,
            kind.version,
            call.http.headers.get("Accept", ""),
            call.info.query.get("includeObject", ""),
        )
        known = self._shapes.get(key)
        if known is not None and known[0] is kind:
            return known[1]
        shape = encode.shape_for(kind, key[2], key[3], self._clock.now)
        if len(self._shapes) >= _SHAPES:
            self._shapes.clear()
        self._shapes[key] = (kind, shape)
        return shape

    async def _body(self, call: calls.Call, kind: kinds.Kind) -> bytes:
        # 3. body. Whoever acts as others pays for it.
        payer = call.impersonator or call.user
        largest = kind.largest_body(call.info.subresource)
        body = await bodies.read(
            call.http, self._limits, self._body_memory, payer.name, largest=largest, charge=call.charge
        )
        self._standing.require(call)
        if len(body) > bounds.LIGHT_BYTES:
            await _require_bounded(call, kind, body)
        return body

    async def _get(self, call: calls.Call, kind: kinds.Kind) -> answers.Response:
        shape = self._shape(call, kind)
        if call.info.subresource == "scale":
            return self._scale(call, await self._actions.get_scale(call, kind))
        item = self._computed_one(call, kind) if kind.is_computed else await self._reader.get(kind, call.info)
        if len(item.body) > connection_module.PIECE:
            cast("connection_module.Connection", call.http.protocol).admit()
        return answers.Answer(shape.whole(item), headers=shape.headers)

    async def _list(self, call: calls.Call, kind: kinds.Kind) -> answers.Response:
        shape = self._shape(call, kind)
        list_options = options.parse(kind, call.info, watch=False)
        connection = cast("connection_module.Connection", call.http.protocol)
        try:
            if kind.is_computed:
                page = self._computed_page(call, kind, list_options)
            else:
                page = await self._reader.page(kind, call.info.space(kind), list_options, connection)
            return await self._reader.send(call.http, page, shape)
        finally:
            connection.keep(0)

    def _computed_one(self, call: calls.Call, kind: kinds.Kind) -> items.Item:
        for item in self._computed_page(call, kind).items:
            if item.name == call.info.name:
                return item
        raise status.not_found(kind.plural, kind.group, call.info.name)

    def _computed_page(
        self, call: calls.Call, kind: kinds.Kind, list_options: options.ListOptions | None = None
    ) -> reads.Page:
        """All of them: there are few, so that a limit is no matter."""
        if kind.plural == "componentstatuses":
            call.warnings.append(computed_module.DEPRECATED)
        rows = self._computed.items(kind)
        if list_options is not None and not list_options.selection.everything:
            rows = [item for item in rows if list_options.selection.matches(item)]
        return reads.Page(rows, {"resourceVersion": str(self._computed.version)})

    async def _watch(self, call: calls.Call, kind: kinds.Kind) -> answers.Response:
        # Events are written as chunks, which neither the answer to a HEAD nor HTTP/1.0 can carry.
        if call.http.method != "GET":
            raise status.StatusError("MethodNotAllowed", "a watch is asked for with GET")
        if call.http.version < aiohttp.HttpVersion11:
            raise status.bad_request("a watch needs HTTP/1.1")
        shape = self._shape(call, kind)
        if shape.headers is not answers.JSON:
            raise negotiate.not_acceptable(negotiate.JSON)
        list_options = options.parse(kind, call.info, watch=True)
        connection = cast("connection_module.Connection", call.http.protocol)
        with self._customs.following(kind, connection.closed_hooks):
            return await self._hub.serve(
                call.http, kind, call.info.space(kind), shape, list_options, call.users, call.started
            )

    async def _create(self, call: calls.Call, kind: kinds.Kind) -> answers.Response:
        # 3. body: within its limits, and the caller still stands
        body = await self._body(call, kind)
        if call.info.subresource == "binding":
            await self._actions.bind(call, kind, body)
            return _document(_success(kind, call.info.name, ""), 201)
        if call.info.subresource == "eviction":
            await self._actions.evict(call, kind, body)
            return _document(_success(kind, call.info.name, ""), 201)
        if call.info.subresource == "token":
            return _document(await self._actions.token(call, kind, body), 201)
        if kind.resource in self._reviews.handlers:
            document = await self._review_document(call, kind, body)
            return _document(self._reviews.answer(call, kind.resource, document), 201)
        # 4. decode: into a document of the kind
        document = await _decoded(call, kind, body)
        # 5. carry out: the object is stored
        item = await self._writer.create(call, kind, document)
        call.created_name = item.name
        # 6. encode: in the shape of 2
        return self._show(call, kind, item, 201)

    async def _review_document(self, call: calls.Call, kind: kinds.Kind, body: bytes) -> objects.Document:
        """The document of a review. Kubelets and webhooks ask the same few things over and over, in the same words."""
        mode, media = bodies.validation_mode(call.info), call.header("Content-Type")
        key = (kind.resource, mode, media, body)
        known = self._review_documents.get(key)
        if known is None:
            document, warnings = await call.work(bodies.for_kind, body, media, kind, mode)
            # Tokens are not kept.
            if not warnings and len(body) <= _REVIEW_BYTES and "token" not in (document.get("spec") or ()):
                if len(self._review_documents) >= _REVIEWS:
                    self._review_documents.clear()
                self._review_documents[key] = document
            call.warnings = warnings
            known = document
        # The answer goes into a copy; what is below its first level is only read.
        return dict(known)

    async def _update(self, call: calls.Call, kind: kinds.Kind) -> answers.Response:
        body = await self._body(call, kind)
        if call.info.subresource == "scale":
            return self._scale(call, await self._actions.put_scale(call, kind, body))
        document = await _decoded(call, kind, body)
        item, created = await self._writer.update(call, kind, document)
        return self._show(call, kind, item, 201 if created else 200)

    async def _patch(self, call: calls.Call, kind: kinds.Kind) -> answers.Response:
        body = await self._body(call, kind)
        item, created = await self._patcher.patch(call, kind, body)
        if call.info.subresource == "scale":
            return self._scale(call, strategies.scale_of(kind, item.document()))
        return self._show(call, kind, item, 201 if created else 200)

    async def _delete(self, call: calls.Call, kind: kinds.Kind) -> answers.Response:
        body = await self._body(call, kind)
        delete_options = deletes.parse_options(call, body)
        space = call.info.space(kind)
        item, gone = await self._deleter.delete(call, kind, space, call.info.name, delete_options)
        if gone and kind.resource != ("", "pods"):
            return _document(_success(kind, item.name, item.document()["metadata"].get("uid", "")))
        return self._show(call, kind, item)

    async def _delete_collection(self, call: calls.Call, kind: kinds.Kind) -> answers.Response:
        body = await self._body(call, kind)
        delete_options = deletes.parse_options(call, body)
        list_options = options.parse(kind, call.info, watch=False)
        connection = cast("connection_module.Connection", call.http.protocol)
        try:
            page = await self._reader.page(kind, call.info.space(kind), list_options, connection)
        finally:
            connection.keep(0)
        listed = list(page.items)
        await self._deleter.delete_collection(call, kind, listed, delete_options)
        shape = self._shape(call, kind)
        # They are gone: a 429 must not hide that.
        return await self._reader.send(call.http, reads.Page(listed, page.metadata), shape, refusable=False)

    def _show(self, call: calls.Call, kind: kinds.Kind, item: items.Item, code: int = 200) -> answers.Answer:
        # 6. encode
        shape = self._shape(call, kind)
        return answers.Answer(shape.whole(item), status=code, headers=shape.headers)

    def _scale(self, call: calls.Call, document: objects.Document) -> answers.Answer:
        include = call.info.query.get("includeObject", "")
        return answers.Answer(encode.scale(document, call.header("Accept"), include, self._clock.now))


async def _require_bounded(call: calls.Call, kind: kinds.Kind, body: bytes) -> None:
    """Have a heavy body worked on aside; 413 if it is too heavy for what it is."""
    media = decode.media_type(call.header("Content-Type"))
    if media in {decode.PROTOBUF, decode.YAML, decode.APPLY}:
        # Read in Python, and bounded there.
        call.is_heavy = True
    else:
        call.weigh(body)
    if call.is_heavy:
        structs.ready(kind.message or structural.OBJECT_META)
    if call.is_heavy and media != decode.PROTOBUF:
        most, name = _body_bound(call.info, kind, media)
        bounds.require(await call.work(bounds.values, body, most), most, name)


def _body_bound(info: request.RequestInfo, kind: kinds.Kind, media: str) -> tuple[int, str]:
    """How many values a body may have, and what it is called."""
    if info.verb in {"delete", "deletecollection"}:
        return bounds.FEW, "DeleteOptions"
    sub = kind.subresource(info.subresource) if info.subresource else None
    if sub is not None and sub.kind != kind.kind:
        return bounds.FEW, sub.kind
    if media == patches.JSON_PATCH:
        return bounds.PATCH, "JSON patch"
    return bounds.limit(kind), kind.kind


async def _decoded(call: calls.Call, kind: kinds.Kind, body: bytes) -> objects.Document:
    # 4. decode
    mode = bodies.validation_mode(call.info)
    document, call.warnings = await call.work(bodies.for_kind, body, call.header("Content-Type"), kind, mode)
    return document


def _document(document: objects.Document, code: int = 200) -> answers.Answer:
    return answers.Answer(_encode(document), status=code)


def _success(kind: kinds.Kind, name: str, uid: str) -> dict[str, Any]:
    details = {"name": name, "group": kind.group, "kind": kind.plural, "uid": uid}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
    }
