# SPDX-License-Identifier: Apache-2.0
"""Resource requests: finds the kind and the verb, and hands the request to who carries it out.

The verbs themselves are `reads`, `watch`, `writes`, `patches`, `deletes`, `workloads` and `reviews`. Callers were
authorised before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

import aiohttp
import msgspec

from handfast.api import bounds, decode, definitions, kinds, objects, status, structs, structural
from handfast.apiserver import (
    bodies,
    call,
    customs,
    deletes,
    encode,
    limits,
    options,
    patches,
    reads,
    request,
    reviews,
    standing,
    states,
    strategies,
    watch,
    workloads,
    writes,
)
from handfast.runtime import aside as aside_module
from handfast.runtime import clock as clock_module
from handfast.serving import answers
from handfast.serving import connection as connection_module

_encode = msgspec.json.Encoder().encode
Answer = Awaitable[answers.Response]
_SHAPES = 512
_QUESTIONS = 1024
_QUESTION_BYTES = 1024
_READS = frozenset({"get", "list", "watch"})
# POST to a named object is no verb of its own; nor is PUT or PATCH to a collection.
_NAMED = {"create": False, "update": True, "patch": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verbs:
    """Who carries out what."""

    reader: reads.Reader
    writer: writes.Writer
    patcher: patches.Patcher
    deleter: deletes.Deleter
    actions: workloads.Workloads
    questions: reviews.Reviews
    hub: watch.Hub


class Resources:
    """Answers requests for resources."""

    def __init__(
        self,
        *,
        definitions_: customs.Customs,
        verbs: Verbs,
        standing_: standing.Standing,
        limits_: limits.Limits,
        aside: aside_module.Aside,
        clock: clock_module.Clock,
    ) -> None:
        self._customs = definitions_
        self._table = definitions_.table
        self._reader = verbs.reader
        self._writer = verbs.writer
        self._patcher = verbs.patcher
        self._deleter = verbs.deleter
        self._actions = verbs.actions
        self._reviews = verbs.questions
        self._hub = verbs.hub
        self._standing = standing_
        self._limits = limits_
        self._room = bodies.Room(limits_)
        self._questions: dict[tuple[tuple[str, str], str, str, bytes], objects.Document] = {}
        self._aside = aside
        self._clock = clock
        self._shapes: dict[tuple[str, str, str, str], tuple[kinds.Kind, encode.Shape]] = {}
        self._verbs: dict[str, Callable[[call.Call, kinds.Kind], Answer]] = {
            "get": self._get,
            "list": self._list,
            "watch": self._watch,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }

    async def answer(self, asked: call.Call) -> answers.Response:
        kind = await self._find(asked)
        asked.kind = kind
        asked.aside = self._aside
        info = asked.info
        if info.subresource:
            sub = kind.subresource(info.subresource)
            if sub is None:
                raise status.no_such_path()
            allowed = info.verb in sub.verbs
        else:
            allowed = info.verb in kind.verbs and _NAMED.get(info.verb, bool(info.name)) == bool(info.name)
        if not allowed:
            raise status.StatusError(
                "MethodNotAllowed", "the server does not allow this method on the requested resource"
            )
        if info.verb not in _READS:
            # Before anything is written: a 406 must not hide that something was.
            self._shape(asked, kind)
        answered = await self._verbs[info.verb](asked, kind)
        if kind.resource == definitions.RESOURCE and info.verb not in _READS:
            # Whoever defined a kind may ask for it, or what there is, the moment they have the answer.
            await self._customs.fresh()
        return answered

    async def _find(self, asked: call.Call) -> kinds.Kind:
        info = asked.info
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

    def _shape(self, asked: call.Call, kind: kinds.Kind) -> encode.Shape:
        """The shape to answer in. Most requests ask for the same few, so they are remembered."""
        key = (
            kind.prefix,
            kind.version,
            asked.http.headers.get("Accept", ""),
            asked.info.query.get("includeObject", ""),
        )
        known = self._shapes.get(key)
        if known is not None and known[0] is kind:
            return known[1]
        shape = encode.shape_for(kind, key[2], key[3], self._clock.now)
        if len(self._shapes) >= _SHAPES:
            self._shapes.clear()
        self._shapes[key] = (kind, shape)
        return shape

    def _show(self, asked: call.Call, kind: kinds.Kind, item: states.Item, code: int = 200) -> answers.Answer:
        return answers.Answer(self._shape(asked, kind).whole(item), status=code)

    async def _get(self, asked: call.Call, kind: kinds.Kind) -> answers.Response:
        shape = self._shape(asked, kind)
        if asked.info.subresource == "scale":
            return _document(await self._actions.get_scale(asked, kind))
        item = await self._reader.get(kind, asked.info)
        if len(item.body) > connection_module.PIECE:
            cast("connection_module.Connection", asked.http.protocol).admit()
        return answers.Answer(shape.whole(item))

    async def _list(self, asked: call.Call, kind: kinds.Kind) -> answers.Response:
        shape = self._shape(asked, kind)
        wanted = options.parse(kind, asked.info, watch=False)
        connection = cast("connection_module.Connection", asked.http.protocol)
        try:
            page = await self._reader.page(kind, asked.info.space(kind), wanted, connection)
            return await self._reader.send(asked.http, page, shape)
        finally:
            connection.keep(0)

    async def _watch(self, asked: call.Call, kind: kinds.Kind) -> answers.Response:
        # Events are written as chunks, which neither the answer to a HEAD nor HTTP/1.0 can carry.
        if asked.http.method != "GET":
            raise status.StatusError("MethodNotAllowed", "a watch is asked for with GET")
        if asked.http.version < aiohttp.HttpVersion11:
            raise status.bad_request("a watch needs HTTP/1.1")
        shape = self._shape(asked, kind)
        wanted = options.parse(kind, asked.info, watch=True)
        connection = cast("connection_module.Connection", asked.http.protocol)
        with self._customs.following(kind, connection.closed_hooks):
            return await self._hub.serve(asked.http, kind, asked.info.space(kind), shape, wanted, asked.users)

    async def _body(self, asked: call.Call, kind: kinds.Kind) -> bytes:
        # Whoever acts as others pays for it.
        payer = asked.impersonator or asked.user
        largest = kind.largest_body(asked.info.subresource)
        body = await bodies.read(asked.http, self._limits, self._room, payer.name, largest=largest, charge=asked.charge)
        self._standing.require(asked)
        if len(body) > bounds.LIGHT_BYTES:
            await _require_bounded(asked, kind, body)
        return body

    async def _create(self, asked: call.Call, kind: kinds.Kind) -> answers.Response:
        body = await self._body(asked, kind)
        if asked.info.subresource == "binding":
            await self._actions.bind(asked, kind, body)
            return _document(_success(kind, asked.info.name, ""), 201)
        if asked.info.subresource == "eviction":
            await self._actions.evict(asked, kind, body)
            return _document(_success(kind, asked.info.name, ""), 201)
        if asked.info.subresource == "token":
            return _document(await self._actions.token(asked, kind, body), 201)
        if kind.resource in self._reviews.handlers:
            document = await self._question(asked, kind, body)
            return _document(self._reviews.answer(asked, kind.resource, document), 201)
        document = await _decoded(asked, kind, body)
        item = await self._writer.create(asked, kind, document)
        asked.created = item.name
        return self._show(asked, kind, item, 201)

    async def _question(self, asked: call.Call, kind: kinds.Kind, body: bytes) -> objects.Document:
        """The document of a review. Kubelets and webhooks ask the same few things over and over, in the same words."""
        mode, media = bodies.validation_mode(asked.info), asked.header("Content-Type")
        key = (kind.resource, mode, media, body)
        known = self._questions.get(key)
        if known is None:
            document, warnings = await asked.work(bodies.for_kind, body, media, kind, mode)
            # Tokens are not kept.
            if not warnings and len(body) <= _QUESTION_BYTES and "token" not in (document.get("spec") or ()):
                if len(self._questions) >= _QUESTIONS:
                    self._questions.clear()
                self._questions[key] = document
            asked.warnings = warnings
            known = document
        # The answer goes into a copy; what is below its first level is only read.
        return dict(known)

    async def _update(self, asked: call.Call, kind: kinds.Kind) -> answers.Response:
        body = await self._body(asked, kind)
        if asked.info.subresource == "scale":
            return _document(await self._actions.put_scale(asked, kind, body))
        document = await _decoded(asked, kind, body)
        item, created = await self._writer.update(asked, kind, document)
        return self._show(asked, kind, item, 201 if created else 200)

    async def _patch(self, asked: call.Call, kind: kinds.Kind) -> answers.Response:
        body = await self._body(asked, kind)
        item, created = await self._patcher.patch(asked, kind, body)
        if asked.info.subresource == "scale":
            return _document(strategies.scale_of(kind, item.document()))
        return self._show(asked, kind, item, 201 if created else 200)

    async def _delete(self, asked: call.Call, kind: kinds.Kind) -> answers.Response:
        body = await self._body(asked, kind)
        wanted = deletes.parse_options(asked, body)
        space = asked.info.space(kind)
        item, gone = await self._deleter.delete(asked, kind, space, asked.info.name, wanted)
        if gone and kind.resource != ("", "pods"):
            return _document(_success(kind, item.name, item.document()["metadata"].get("uid", "")))
        return self._show(asked, kind, item)

    async def _delete_collection(self, asked: call.Call, kind: kinds.Kind) -> answers.Response:
        body = await self._body(asked, kind)
        wanted = deletes.parse_options(asked, body)
        wanted_items = options.parse(kind, asked.info, watch=False)
        connection = cast("connection_module.Connection", asked.http.protocol)
        try:
            page = await self._reader.page(kind, asked.info.space(kind), wanted_items, connection)
        finally:
            connection.keep(0)
        items = list(page.items)
        await self._deleter.delete_collection(asked, kind, items, wanted)
        shape = self._shape(asked, kind)
        # They are gone: a 429 must not hide that.
        return await self._reader.send(asked.http, reads.Page(items, page.metadata), shape, refusable=False)


async def _require_bounded(asked: call.Call, kind: kinds.Kind, body: bytes) -> None:
    """Have a heavy body worked on aside; 413 if it is too heavy for what it is."""
    media = decode.media_type(asked.header("Content-Type"))
    if media in {decode.PROTOBUF, decode.YAML, patches.APPLY}:
        # Read in Python, and bounded there.
        asked.is_heavy = True
    else:
        asked.weigh(body)
    if asked.is_heavy:
        structs.ready(kind.message or structural.OBJECT_META)
    if asked.is_heavy and media != decode.PROTOBUF:
        most, what = _most(asked.info, kind, media)
        bounds.require(await asked.work(bounds.values, body, most), most, what)


def _most(info: request.RequestInfo, kind: kinds.Kind, media: str) -> tuple[int, str]:
    """How many values a body may have, and what it is."""
    if info.verb in {"delete", "deletecollection"}:
        return bounds.FEW, "DeleteOptions"
    sub = kind.subresource(info.subresource) if info.subresource else None
    if sub is not None and sub.kind != kind.kind:
        return bounds.FEW, sub.kind
    if media == patches.JSON_PATCH:
        return bounds.PATCH, "JSON patch"
    return bounds.limit(kind), kind.kind


async def _decoded(asked: call.Call, kind: kinds.Kind, body: bytes) -> objects.Document:
    mode = bodies.validation_mode(asked.info)
    document, asked.warnings = await asked.work(bodies.for_kind, body, asked.header("Content-Type"), kind, mode)
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
