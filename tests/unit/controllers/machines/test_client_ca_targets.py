# SPDX-License-Identifier: Apache-2.0
"""Where merged client CAs go: the ConfigMap of Handfast's API server, or a file for another one."""

from __future__ import annotations

import pathlib
import stat
from typing import Any

import pytest

from handfast import errors
from handfast.api import status
from handfast.client import events
from handfast.controllers import immutable
from handfast.controllers.machines import client_ca_targets
from handfast.pki import certificates, pem
from handfast.rules import client_ca_bundle
from handfast.rules.machines import client_ca_sources
from handfast.runtime import tls
from tests.unit.controllers.fake_api import FakeClient
from tests.unit.pki import odd
from tests.unit.pki.making import DAY, NOW, SERVER, Made, ca, leaf
from tests.world.clock import MovableClock

OWN, HAND, USERS, SIGNER, OTHER = ca("own"), ca("by hand"), ca("users"), ca("signer"), ca("other")
ODD = odd.ca("cRLDistributionPoints", "x400Address")
AT = ("configmaps", "kube-system", "extension-apiserver-authentication")
USER_CA = ("openshift-kube-apiserver", "user-client-ca")
CONFIG, MANAGED = client_ca_sources.BOOTSTRAP


def text(*made: Made) -> str:
    return "".join(one.pem.decode() for one in made)


def print_of(made: Made) -> str:
    return certificates.fingerprint(made.der)


def contents(**given: Any) -> dict[tuple[str, str], client_ca_sources.Content]:
    """What the sources give: `users`, `config`, `managed`."""
    places = {"users": USER_CA, "config": CONFIG, "managed": MANAGED}
    every = dict.fromkeys(client_ca_sources.ALL, client_ca_sources.Content())
    for word, made in given.items():
        whole = made if isinstance(made, str) else text(*made)
        every[places[word]] = client_ca_sources.read({"metadata": {}, "data": {"ca-bundle.crt": whole}})
    return every


class Server:
    """An API server that reads the ConfigMap."""

    def __init__(self, *made: Made, own: tuple[Made, ...] = (), **more: Any) -> None:
        self.client = FakeClient()
        self.client.put(*AT[::2], AT[1], data={client_ca_bundle.KEY: text(*made)}, **more)
        self.client.put("configmaps", client_ca_bundle.HISTORY, AT[1], data={})
        recorder = events.Recorder(self.client, MovableClock(), "test")
        self.target = client_ca_targets.ConfigMapTarget(
            self.client, frozenset(map(print_of, own)), immutable.Immutable(recorder, "test")
        )

    @property
    def data(self) -> dict[str, str]:
        return dict(self.client.objects[AT]["data"])

    async def settle(self, **given: Any) -> client_ca_targets.Settled:
        settled = await self.target.settle(contents(**given), NOW)
        assert settled is not None
        return settled

    def trusts(self, key: str = client_ca_bundle.KEY) -> list[bytes]:
        return pem.certificates_from_pem(self.data[key].encode()) if key in self.data else []

    def record(self) -> dict[str, tuple[str, ...]]:
        return client_ca_bundle.record(self.client.objects[AT]).certificates


class TestConfigMap:
    async def test_each_goes_where_it_belongs(self) -> None:
        server = Server(OWN)
        settled = await server.settle(users=[USERS], config=[SIGNER], managed=[SIGNER, OTHER])
        assert server.trusts() == [OWN.der, USERS.der]
        assert server.trusts(client_ca_bundle.SCOPED_KEY) == [SIGNER.der, OTHER.der]
        assert server.record() == {print_of(USERS): ("openshift-kube-apiserver/user-client-ca",)}
        assert {each.der for each in settled.added} == {USERS.der, SIGNER.der, OTHER.der}
        assert settled.unscoped == (OWN.der, USERS.der)

    async def test_unchanged_is_not_written(self) -> None:
        server = Server(OWN)
        await server.settle(users=[USERS], config=[SIGNER])
        before = list(server.client.calls)
        settled = await server.settle(users=[USERS], config=[SIGNER])
        assert server.client.calls == before
        assert (settled.added, settled.removed) == ((), ())

    async def test_what_no_source_gives_any_more_goes(self) -> None:
        server = Server(OWN)
        await server.settle(users=[USERS], config=[SIGNER])
        settled = await server.settle()
        assert server.trusts() == [OWN.der]
        assert client_ca_bundle.SCOPED_KEY not in server.data
        assert set(settled.removed) == {print_of(USERS), print_of(SIGNER)}

    async def test_foreign_annotations_and_other_keys_are_kept(self) -> None:
        server = Server(OWN, metadata={"annotations": {"theirs": "x"}})
        server.client.objects[AT]["data"]["requestheader-client-ca-file"] = "theirs"
        await server.settle(users=[USERS])
        assert server.client.objects[AT]["metadata"]["annotations"] == {"theirs": "x"}
        assert server.data["requestheader-client-ca-file"] == "theirs"

    async def test_what_expired_is_not_given_to_bootstrap_credentials(self) -> None:
        server = Server(OWN)
        await server.settle(config=[ca("old", not_before=NOW - 2 * DAY, not_after=NOW)])
        assert client_ca_bundle.SCOPED_KEY not in server.data

    async def test_the_last_one_is_kept(self) -> None:
        server = Server(OWN)
        await server.settle(users=[USERS])
        server.client.objects[AT]["data"][client_ca_bundle.KEY] = text(USERS)
        settled = await server.settle()
        assert server.trusts() == [USERS.der]
        assert settled.kept == (print_of(USERS),)

    async def test_the_directorys_own_is_never_removed(self) -> None:
        server = Server(OWN, own=(USERS,))
        given = {print_of(USERS): ("openshift-kube-apiserver/user-client-ca",)}
        data = server.client.objects[AT]["data"]
        data |= {
            client_ca_bundle.KEY: text(OWN, USERS),
            client_ca_bundle.SOURCES_KEY: client_ca_bundle.Record(given).text(),  # type: ignore[arg-type]
        }
        await server.settle()
        assert server.trusts() == [OWN.der, USERS.der]
        assert server.record() == {}

    @pytest.mark.parametrize("key", [client_ca_bundle.KEY, client_ca_bundle.SOURCES_KEY])
    async def test_what_cannot_be_read_is_left_alone_and_blocks_no_revocation(self, key: str) -> None:
        server = Server(OWN)
        await server.settle(users=[USERS], config=[SIGNER, OTHER])
        server.client.objects[AT]["data"][key] = "broken"
        before = server.data
        settled = await server.settle(config=[OTHER])
        assert server.trusts(client_ca_bundle.SCOPED_KEY) == [OTHER.der]
        assert {name: server.data[name] for name in (client_ca_bundle.KEY, client_ca_bundle.SOURCES_KEY)} == {
            name: before[name] for name in (client_ca_bundle.KEY, client_ca_bundle.SOURCES_KEY)
        }
        assert settled.trouble.startswith("its client CAs are left as they are: ")

    async def test_a_broken_list_of_bootstrap_cas_is_written_anew(self) -> None:
        server = Server(OWN)
        server.client.objects[AT]["data"][client_ca_bundle.SCOPED_KEY] = "broken"
        await server.settle(config=[SIGNER])
        assert server.trusts(client_ca_bundle.SCOPED_KEY) == [SIGNER.der]

    async def test_one_by_hand_that_counts_nowhere_is_left_out_of_what_is_written(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server = Server(OWN, ODD, leaf(OWN, SERVER), OTHER)
        monkeypatch.setattr(tls, "useless", lambda ders: [der for der in ders if der == OTHER.der])
        before = server.trusts()
        await server.settle()
        assert server.trusts() == before, "nothing else changes, so that it stays"
        await server.settle(users=[USERS])
        assert server.trusts() == [OWN.der, USERS.der]

    async def test_it_is_the_api_server_that_makes_it(self) -> None:
        server = Server(OWN)
        del server.client.objects[AT]
        assert await server.target.settle(contents(users=[USERS]), NOW) is None
        assert server.client.calls == []

    async def test_another_api_server_does_not_read_it(self) -> None:
        server = Server(OWN)
        del server.client.objects["configmaps", "kube-system", client_ca_bundle.HISTORY]
        with pytest.raises(errors.Refused) as caught:
            await server.settle(users=[USERS])
        assert caught.value.reason == "AnotherAPIServer"
        assert "--client-ca-file-out" in str(caught.value.hint)
        assert server.client.calls == []

    async def test_an_immutable_one_is_told_of(self) -> None:
        server = Server(OWN, immutable=True)
        await server.settle(users=[USERS])
        assert server.trusts() == [OWN.der]
        assert [call[1] for call in server.client.calls] == ["events"]

    async def test_a_lost_race_is_for_the_loop_to_retry(self) -> None:
        server = Server(OWN)

        def race(verb: str, *_: str) -> None:
            if verb == "update":
                server.client.before = lambda *_: None
                server.client.put(*AT[::2], AT[1], data={client_ca_bundle.KEY: text(OWN, HAND)})

        server.client.before = race
        with pytest.raises(status.StatusError) as caught:
            await server.settle(users=[USERS])
        assert caught.value.reason == "Conflict"
        await server.settle(users=[USERS])
        assert server.trusts() == [OWN.der, HAND.der, USERS.der]


class TestFile:
    @pytest.fixture
    def path(self, tmp_path: pathlib.Path) -> pathlib.Path:
        path = tmp_path / "client-ca.crt"
        path.write_text("# kubeadm's\n" + text(OWN))
        return path

    async def settle(self, path: pathlib.Path, own: tuple[Made, ...] = (), **given: Any) -> client_ca_targets.Settled:
        target = client_ca_targets.FileTarget(path, frozenset(map(print_of, own)))
        settled = await target.settle(contents(**given), NOW)
        assert settled is not None
        return settled

    def trusts(self, path: pathlib.Path) -> list[bytes]:
        return pem.certificates_from_pem(path.read_bytes())

    async def test_everything_is_in_one_file_that_the_api_server_may_read(self, path: pathlib.Path) -> None:
        settled = await self.settle(path, users=[USERS], config=[SIGNER])
        assert self.trusts(path) == [OWN.der, USERS.der, SIGNER.der]
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        assert settled.unscoped == [OWN.der, USERS.der], "what has a limit elsewhere is told apart"
        assert settled.config_map is None

    async def test_it_is_taken_back(self, path: pathlib.Path) -> None:
        await self.settle(path, users=[USERS], config=[SIGNER])
        settled = await self.settle(path, users=[USERS])
        assert self.trusts(path) == [OWN.der, USERS.der]
        assert settled.removed == (print_of(SIGNER),)
        await self.settle(path)
        assert self.trusts(path) == [OWN.der]

    async def test_unchanged_is_not_written(self, path: pathlib.Path) -> None:
        before = path.stat()
        await self.settle(path)
        assert path.stat() == before
        await self.settle(path, users=[USERS])
        before = path.stat()
        await self.settle(path, users=[USERS])
        assert path.stat() == before

    async def test_what_is_there_by_hand_stays(self, path: pathlib.Path) -> None:
        path.write_text(text(OWN, HAND, ODD))
        await self.settle(path, users=[HAND, USERS])
        await self.settle(path)
        assert self.trusts(path) == [OWN.der, HAND.der, ODD.der]

    async def test_it_is_never_empty(self, path: pathlib.Path) -> None:
        await self.settle(path, users=[USERS])
        whole = path.read_text()
        path.write_text(whole.replace(text(OWN), ""))
        settled = await self.settle(path)
        assert self.trusts(path) == [USERS.der]
        assert settled.kept == (print_of(USERS),)

    async def test_it_is_never_made(self, path: pathlib.Path) -> None:
        path.unlink()
        with pytest.raises(errors.HandfastError) as caught:
            await self.settle(path, users=[USERS])
        assert "copy the CA file of the API server there first" in str(caught.value.hint)
        assert not path.exists()

    @pytest.mark.parametrize("content", ["", "broken", "# handfast-client-ca-sources: broken\n" + text(OWN)])
    async def test_what_cannot_be_read_is_not_written_over(self, path: pathlib.Path, content: str) -> None:
        path.write_text(content)
        with pytest.raises(errors.Refused):
            await self.settle(path, users=[USERS])
        assert path.read_text() == content
