# SPDX-License-Identifier: Apache-2.0
"""Tokens in files: private, all or none, and never in a repr."""

import datetime
import stat

import pytest

from handfast.api import status
from handfast.client import account_tokens, api

ENDS = "2030-01-01T01:00:00Z"


class Api(api.Client):
    """Gives tokens that say whose they are; refuses those of one account."""

    def __init__(self, refused=""):  # without a transport, since it answers itself
        self.refused = refused
        self.specs: list[dict[str, object]] = []

    async def create(self, resource, document, *, namespace="", name="", subresource="", dry_run=False):
        assert (resource.plural, subresource) == ("serviceaccounts", "token")
        self.specs.append(document["spec"])
        if name == self.refused:
            raise status.forbidden("serviceaccounts", "", name, "no")
        return {"status": {"token": f"{namespace}/{name}", "expirationTimestamp": ENDS}}


async def test_every_account_gets_a_file_that_only_its_owner_reads(tmp_path):
    places = {name: tmp_path / f"{name}.token" for name in ("a", "b")}
    client = Api()
    ends = await account_tokens.keep(client, "linkerd", places, seconds=3600)
    assert ends == datetime.datetime(2030, 1, 1, 1, tzinfo=datetime.UTC)
    assert [path.read_text() for path in places.values()] == ["linkerd/a", "linkerd/b"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in places.values()} == {0o600}
    assert client.specs == [{"expirationSeconds": 3600}] * 2


async def test_where_one_is_refused_every_old_one_stays(tmp_path):
    places = {name: tmp_path / f"{name}.token" for name in ("a", "b")}
    places["a"].write_text("old")
    with pytest.raises(status.StatusError):
        await account_tokens.keep(Api(refused="b"), "linkerd", places, seconds=3600)
    assert [path.name for path in tmp_path.iterdir()] == ["a.token"]
    assert places["a"].read_text() == "old"


async def test_a_token_for_somebody_names_them_and_does_not_print():
    client = Api()
    token = await account_tokens.request(client, "linkerd", "a", seconds=600, audiences=("identity.l5d.io",))
    assert client.specs == [{"expirationSeconds": 600, "audiences": ["identity.l5d.io"]}]
    assert "linkerd/a" not in repr(token)
