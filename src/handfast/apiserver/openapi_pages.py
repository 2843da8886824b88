# SPDX-License-Identifier: Apache-2.0
"""/openapi/v2 and /openapi/v3: the description of the API as pages, each made when it is first asked for and kept.

1. A page is made aside, from the rows of the table as they are when it is asked for. A row is never changed, so a page is good as
   long as it shows the rows that are there.
2. One page is made at a time; whoever else asks waits for it, and gets it.
3. Of OpenAPI 2 each custom resource is a piece of its own, and pieces are made a few at a time. A definition that changes costs one
   piece, and the rest is put together as it is.
4. Of OpenAPI 3 the index needs no page of a custom resource: what it gives as a hash is that of the rows. Pages of custom resources
   are kept up to `_KEPT_BYTES`, those that were asked for last.
5. Every page has an ETag, and `If-None-Match` is honoured.

It does not say what is in a page (`api.openapi`), nor who may read it.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from handfast.api import kinds, status
from handfast.api.openapi import openapi, swagger
from handfast.runtime import aside as aside_module
from handfast.serving import answers

_encode = msgspec.json.Encoder().encode
# What is made in one go, so that others have their turn aside: some 5 ms, with schemas as large as most are.
_ROWS_AT_ONCE = 8
_KEPT_BYTES = 16 << 20
Rows = tuple[kinds.Kind, ...]
GroupVersion = tuple[str, str]
# Stands for every custom resource: what is said of it changes when anything does that all of them say.
_SAMPLE = kinds.Kind(
    group="example.com", version="v1", kind="Sample", plural="samples", singular="sample", namespaced=True, schema={}
)


class Page(NamedTuple):
    """An encoded document, and the rows that it shows."""

    rows: Rows
    body: bytes
    etag: str
    content_type: str

    def shows(self, rows: Rows) -> bool:
        return len(rows) == len(self.rows) and all(map(_is, rows, self.rows))

    def answer(self, if_none_match: str) -> answers.Answer:
        headers = {"Content-Type": self.content_type, "ETag": self.etag, "Vary": "Accept"}
        # 5. whoever has it already gets it not again
        if self.etag in (each.strip().removeprefix("W/") for each in if_none_match.split(",")):
            return answers.Answer(status=304, headers=headers)
        return answers.Answer(self.body, headers=headers)


class Pages:
    """The pages about a table of kinds."""

    def __init__(self, table: kinds.Table, aside: aside_module.Aside | None = None) -> None:
        self._table = table
        self._aside = aside
        self._making = asyncio.Lock()
        self._builtin: dict[str, swagger.Pieces] = {}
        self._pieces: dict[str, dict[int, tuple[kinds.Kind, swagger.Pieces]]] = {}
        self._swagger: dict[str, Page] = {}
        self._documents: OrderedDict[GroupVersion, Page] = OrderedDict()
        self._hashes: dict[GroupVersion, tuple[Rows, str]] = {}
        self._index: Page | None = None

    async def page(self, path: str, accept: str, user: str) -> Page:
        """The page at a path; NotFound for a path that has none."""
        if path == "/openapi/v2":
            return await self._one(functools.partial(self._made_v2, swagger.form_for(accept)), user)
        if path == "/openapi/v3":
            return await self._one(self._made_index, user)
        return await self._one(functools.partial(self._made_v3, _group_version(path)), user)

    async def _one(self, make: Callable[[Rows, str], Any], user: str) -> Page:
        # 2. one page at a time
        async with self._making:
            page: Page = await make(tuple(self._table), user)
            return page

    async def _run(self, user: str, do: Callable[..., Any], *arguments: Any) -> Any:
        # 1. aside, from rows that never change
        return do(*arguments) if self._aside is None else await self._aside.run(user, do, *arguments)

    # --- OpenAPI 2

    async def _made_v2(self, form: swagger.Form, rows: Rows, user: str) -> Page:
        known = self._swagger.get(form.content_type)
        if known is not None and known.shows(rows):
            return known
        fixed = self._builtin.get(form.content_type)
        if fixed is None:
            builtin = tuple(row for row in rows if row.message)
            fixed = self._builtin[form.content_type] = await self._run(user, swagger.builtin_pieces, builtin, form)
        pieces = await self._custom_pieces(form, tuple(row for row in rows if not row.message), user)
        page: Page = await self._run(user, _joined, rows, (fixed, *pieces), form)
        self._swagger[form.content_type] = page
        return page

    async def _custom_pieces(self, form: swagger.Form, rows: Rows, user: str) -> list[swagger.Pieces]:
        known = self._pieces.get(form.content_type, {})
        there = {id(row): known[id(row)] for row in rows if id(row) in known}
        missing = [row for row in rows if id(row) not in there]
        # The rows are kept with their pieces, so that no other row can have the same id. What is made stays, also for one who
        # gives up half-way.
        self._pieces[form.content_type] = there
        # 3. a few at a time
        for start in range(0, len(missing), _ROWS_AT_ONCE):
            few = missing[start : start + _ROWS_AT_ONCE]
            made = await self._run(user, _pieces_of, few, form)
            there.update({id(row): (row, piece) for row, piece in zip(few, made, strict=True)})
        return [there[id(row)][1] for row in rows]

    # --- OpenAPI 3

    async def _made_v3(self, group_version: GroupVersion, table: Rows, user: str) -> Page:
        rows = tuple(row for row in table if (row.group, row.version) == group_version)
        if not rows:
            raise status.no_such_path()
        known = self._documents.pop(group_version, None)
        if known is None or not known.shows(rows):
            known = await self._run(user, _described, group_version, rows)
        self._documents[group_version] = known
        self._keep_within_bounds()
        return known

    def _keep_within_bounds(self) -> None:
        # 4. the pages of custom resources that were asked for last
        custom = [key for key, page in self._documents.items() if not page.rows[0].message]
        size = sum(len(self._documents[key].body) for key in custom)
        for key in custom[:-1]:
            if size > _KEPT_BYTES:
                size -= len(self._documents.pop(key).body)

    async def _made_index(self, table: Rows, user: str) -> Page:
        if self._index is not None and self._index.shows(table):
            return self._index
        groups: dict[GroupVersion, list[kinds.Kind]] = {}
        for row in table:
            groups.setdefault((row.group, row.version), []).append(row)
        hashes = {key: await self._hash(key, tuple(rows), table, user) for key, rows in groups.items()}
        self._hashes = {key: (tuple(groups[key]), digest) for key, digest in hashes.items()}
        self._index = _page(table, _encode(openapi.index(hashes)))
        return self._index

    async def _hash(self, group_version: GroupVersion, rows: Rows, table: Rows, user: str) -> str:
        known = self._hashes.get(group_version)
        if known is not None and len(known[0]) == len(rows) and all(map(_is, known[0], rows)):
            return known[1]
        if rows[0].message:
            return openapi.fingerprint((await self._made_v3(group_version, table, user)).body)
        digest: str = await self._run(user, _hash_of_rows, rows)
        return digest


def _is(one: object, other: object) -> bool:
    return one is other


def _page(rows: Rows, body: bytes, content_type: str = "application/json") -> Page:
    return Page(rows, body, '"' + hashlib.sha256(body).hexdigest().upper() + '"', content_type)


def _group_version(path: str) -> GroupVersion:
    parts = path.strip("/").split("/")
    if len(parts) == 4 and parts[1:3] == ["v3", "api"]:
        return ("", parts[3])
    if len(parts) == 5 and parts[1:3] == ["v3", "apis"]:
        return (parts[3], parts[4])
    raise status.no_such_path()


def _pieces_of(rows: Iterable[kinds.Kind], form: swagger.Form) -> list[swagger.Pieces]:
    return [swagger.custom_pieces(row, form) for row in rows]


def _joined(rows: Rows, pieces: Iterable[swagger.Pieces], form: swagger.Form) -> Page:
    return _page(rows, swagger.document(pieces, form), form.content_type)


def _described(group_version: GroupVersion, rows: Rows) -> Page:
    return _page(rows, _encode(openapi.document(*group_version, rows)))


@functools.cache
def _sample() -> bytes:
    return _described(("example.com", "v1"), (_SAMPLE,)).body


def _hash_of_rows(rows: Iterable[kinds.Kind]) -> str:
    """The hash of a page of custom resources without the page: of all that it is made from."""
    facts = [
        (row.group, row.version, row.kind, row.list_kind, row.plural, row.namespaced, row.verbs, row.subresources)
        for row in rows
    ]
    return openapi.fingerprint(_sample() + _encode(facts) + _encode([row.schema for row in rows]))
