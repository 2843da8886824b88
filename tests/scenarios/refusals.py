# SPDX-License-Identifier: Apache-2.0
"""Rows of bad requests, and one way to put them to a served world; nothing here is under test.

What is looked at for each row: the code and words of the Status, that nothing was stored, and that the answer shows no
trace of the program.
"""

from __future__ import annotations

import io
import logging
from typing import Any, NamedTuple

import msgspec
import pytest
import yarl

from handfast.api import status
from tests.world import world as worlds

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


class Row(NamedTuple):
    """A request that must be refused; `says` is a part of the message."""

    method: str
    path: str
    body: Any = None
    code: int = 400
    says: str = ""
    media: str = JSON
    headers: dict[str, str] | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.path[:200]} {self.media} {str(self.body)[:200]}"


async def send(world: worlds.World, row: Row) -> worlds.Answer:
    headers = {**(row.headers or {}), **({} if row.body is None else {"Content-Type": row.media})}
    # As written: a client that tidied paths up would hide what is tried.
    url = yarl.URL(world.base + row.path, encoded=True)
    body = row.body if row.body is None or isinstance(row.body, bytes) else msgspec.json.encode(row.body)
    data = None if body is None else io.BytesIO(body)
    async with world.session().request(row.method, url, data=data, headers=headers) as response:
        return worlds.Answer(response.status, response.headers, await response.read())


async def refused(world: worlds.World, rows: list[Row]) -> None:
    """Every row gets its Status, and changes nothing."""
    for row in rows:
        before = world.server.replica.version
        answer = await send(world, row)
        shown = f"{row}\n-> {answer.status} {answer.body[:300]!r}"
        assert answer.status == row.code, shown
        document = answer.json()
        assert (document["kind"], document["status"], document["code"]) == ("Status", "Failure", row.code), shown
        assert document["reason"] in status.CODES, shown
        assert row.says in document["message"], shown
        assert answer.headers["Audit-Id"], shown
        assert b"Traceback" not in answer.body, shown
        await world.server.replica.fresh()
        assert world.server.replica.version == before, f"something was stored: {shown}"
    assert (await world.get("/healthz")).body == b"ok"


def require_quiet(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing that happened was a surprise to the server."""
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    out, err = capfd.readouterr()
    for text in ("Traceback", "request failed", "Unhandled exception"):
        assert text not in out + err
