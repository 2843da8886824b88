# SPDX-License-Identifier: Apache-2.0
"""The copy of a cluster in a kubeconfig: kept up to date, never for the worse, and all else left alone."""

from __future__ import annotations

import asyncio
import dataclasses
import stat

import pytest
import structlog
import yaml

from handfast import errors
from handfast.bootstrap import cluster_info, kubeconfig
from handfast.client import cluster_cache
from handfast.client import discovery as searching
from tests.unit.client.test_discovery import CA, INFO, NEXT, TROUBLE, A, B, C, Servers, document, run, status
from tests.world import tls_cluster
from tests.world.clock import MovableClock
from tests.world.tls_cluster import refusal

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: me@one
contexts:
- {name: me@one, context: {cluster: one, user: me, namespace: x}}
- {name: two, context: {cluster: two}}
clusters:
- name: two
  cluster: {server: "https://two"}
- name: one
  cluster:
    server: https://a:6443
    certificate-authority-data: %s
    extensions:
    - {name: other.example, extension: {kept: true}}
    unknown: kept
users:
- name: me
  user: {token: "012345.0123456789012345"}
"""


@pytest.fixture
def clock():
    return MovableClock()


@pytest.fixture
def path(tmp_path):
    """What somebody has who has never refreshed: one server, no id."""
    body = yaml.safe_load(cluster_info.build(INFO))["clusters"][0]["cluster"]
    made = tmp_path / "config"
    made.write_text(KUBECONFIG % body["certificate-authority-data"])
    made.chmod(0o644)
    return made


def refresh(path, servers, context=""):
    search = searching.Discovery(servers.clock, ask=servers)
    return run(servers.clock, cluster_cache.refresh(path, search, context))


class TestRefresh:
    async def test_first_time(self, clock, path):
        servers = Servers(clock, a=document(), b=document())
        found = await refresh(path, servers)
        assert (found.changed, found.server, found.info) == (("servers", "id"), A, INFO)
        assert servers.asked == [("a", True, False)]
        assert cluster_cache.load(path).info == INFO
        # It is its owner's to say who may read it.
        assert stat.S_IMODE(path.stat().st_mode) == 0o644

    async def test_nothing_new_writes_nothing(self, clock, path):
        servers = Servers(clock, a=document(), b=document())
        await refresh(path, servers)
        before = path.stat()
        assert (await refresh(path, servers)).changed == ()
        assert path.stat().st_ino == before.st_ino

    async def test_all_else_stays(self, clock, path):
        before = yaml.safe_load(path.read_text())
        await refresh(path, Servers(clock, a=document(), b=document()))
        after = yaml.safe_load(path.read_text())
        one = after["clusters"][1]["cluster"]
        assert (one["unknown"], one["extensions"][0]["name"]) == ("kept", "other.example")
        assert after["clusters"][0] == before["clusters"][0]
        assert {key: after[key] for key in after if key != "clusters"} == {
            key: before[key] for key in before if key != "clusters"
        }
        assert kubeconfig.parse(path.read_text()).user == kubeconfig.parse(KUBECONFIG % "").user

    async def test_new_servers_and_a_new_ca(self, clock, path):
        await refresh(path, Servers(clock, a=document(), b=document()))
        fresh = cluster_info.ClusterInfo((C, B), CA.pem + NEXT.pem, "uid")
        servers = Servers(clock, a=document(fresh), b=document(fresh), c=document(fresh))
        found = await refresh(path, servers)
        assert (found.server, found.changed) == (C, ("server", "servers", "certificate authority"))
        assert cluster_cache.load(path).info == fresh

    async def test_a_rotation_of_the_ca(self, clock, path):
        """Both are published, then the server changes over, then the old one goes."""
        await refresh(path, Servers(clock, a=document(), b=document()))
        both = document(dataclasses.replace(INFO, ca=CA.pem + NEXT.pem))
        await refresh(path, Servers(clock, a=both, b=both))
        moved = Servers(clock, a=both, b=both)
        moved.cas |= dict.fromkeys("ab", NEXT.pem)
        assert (await refresh(path, moved)).changed == ()
        after = dataclasses.replace(INFO, ca=NEXT.pem)
        moved.answers = {"a": document(after), "b": document(after)}
        assert (await refresh(path, moved)).changed == ("certificate authority",)
        assert cluster_cache.load(path).info == after

    @pytest.mark.parametrize("kept", [b"", CA.pem])
    async def test_a_writer_of_cluster_info_does_not_move_anybody_in_one_refresh(self, clock, path, kept):
        """They hold no key of the CA, so their server is not taken for the cluster's. Their CA is, beside the one that is
        known, as it is when a CA is rotated: what can be done over two refreshes is in docs/threat-model.md."""
        await refresh(path, Servers(clock, a=document(), b=document()))
        before = path.read_bytes()
        theirs = document(cluster_info.ClusterInfo((C,), kept + NEXT.pem, INFO.id))
        servers = Servers(clock, a=theirs, b=theirs, c=theirs)
        servers.cas["c"] = NEXT.pem
        if kept:
            assert (await refresh(path, servers)).server == A
            assert cluster_cache.load(path).info == cluster_info.ClusterInfo((A, C), CA.pem + NEXT.pem, INFO.id)
        else:
            assert (await refusal(refresh(path, servers))).reason == "AllRootsChanged"
            assert path.read_bytes() == before

    async def test_all_but_one_moved(self, clock, path):
        await refresh(path, Servers(clock, a=document(), b=document()))
        fresh = dataclasses.replace(INFO, servers=(C, B))
        found = await refresh(
            path, Servers(clock, a=TROUBLE.CONNECTION_REFUSED, b=document(fresh), c=TROUBLE.NO_ANSWER)
        )
        assert (found.server, cluster_cache.load(path).info.servers) == (B, (B, C))

    @pytest.mark.parametrize(
        ("answers", "reason"),
        [
            ({"a": TROUBLE.CONNECTION_REFUSED, "b": TROUBLE.NO_ANSWER}, "AllEndpointsMoved"),
            ({"a": TROUBLE.NAME_NOT_FOUND, "b": status(404)}, "AllEndpointsMoved"),
            ({"a": TROUBLE.UNTRUSTED, "b": TROUBLE.NO_ANSWER}, "AllRootsChanged"),
            ({"a": document(dataclasses.replace(INFO, id="x")), "b": TROUBLE.NO_ANSWER}, "OtherCluster"),
        ],
    )
    async def test_a_cluster_that_is_lost_is_told_and_nothing_is_written(self, clock, path, answers, reason):
        await refresh(path, Servers(clock, a=document(), b=document()))
        before = path.read_bytes()
        error = await refusal(refresh(path, Servers(clock, **answers)))
        assert error.reason == reason
        assert "handfast join" in str(error.hint)
        assert path.read_bytes() == before

    async def test_what_does_not_work_is_not_taken_over(self, clock, path):
        """The new CA is one that no server has a certificate of."""
        await refresh(path, Servers(clock, a=document(), b=document()))
        before = path.read_bytes()
        wrong = document(dataclasses.replace(INFO, ca=NEXT.pem))
        assert (await refusal(refresh(path, Servers(clock, a=wrong, b=wrong)))).reason == "AllRootsChanged"
        assert path.read_bytes() == before

    async def test_servers_out_of_reach_do_not_strand_anybody(self, clock, path):
        fresh = document(dataclasses.replace(INFO, servers=(C,)))
        found = await refresh(path, Servers(clock, a=fresh, c=TROUBLE.NO_ANSWER))
        assert found.server == A
        assert found.notes
        assert cluster_cache.load(path).info.servers == (A, C)
        assert (await refresh(path, Servers(clock, a=fresh, c=TROUBLE.NO_ANSWER))).changed == ()

    async def test_a_link_stays_one(self, clock, path, tmp_path):
        link = tmp_path / "link"
        link.symlink_to(path)
        await refresh(link, Servers(clock, a=document(), b=document()))
        assert link.is_symlink()
        assert cluster_cache.load(path).info == INFO

    async def test_what_somebody_else_changed_meanwhile_is_kept(self, clock, path):
        def a(*, verified, token):
            path.write_text(path.read_text().replace("namespace: x", "namespace: y"))
            return document()

        await refresh(path, Servers(clock, a=a, b=document()))
        assert kubeconfig.parse(path.read_text()).namespace == "y"


class TestKnown:
    def test_another_context(self, path):
        found = cluster_cache.load(path, "two")
        assert (found.cluster, found.info) == ("two", cluster_info.ClusterInfo(("https://two",), None, ""))

    async def test_a_context_without_a_ca_gets_none_from_a_server_that_is_not_trusted(self, clock, path):
        error = await refusal(refresh(path, Servers(clock, two=document()), "two"))
        assert error.reason == "AllRootsChanged"

    def test_a_ca_in_a_file(self, tmp_path):
        (tmp_path / "ca.crt").write_bytes(CA.pem)
        text = KUBECONFIG.replace("certificate-authority-data: %s", "certificate-authority: ca.crt")
        (tmp_path / "config").write_text(text)
        found = cluster_cache.load(tmp_path / "config")
        assert found.info.ca == CA.pem
        after = yaml.safe_load(cluster_cache.replaced(text, "one", INFO, A))["clusters"][1]["cluster"]
        assert "certificate-authority" not in after
        assert after["certificate-authority-data"]

    def test_not_text(self, tmp_path):
        (tmp_path / "config").write_bytes(b"\xff")
        with pytest.raises(errors.Refused, match="not UTF-8"):
            cluster_cache.load(tmp_path / "config")

    def test_not_verified(self, tmp_path):
        text = KUBECONFIG.replace("certificate-authority-data: %s", "insecure-skip-tls-verify: true")
        (tmp_path / "config").write_text(text)
        with pytest.raises(errors.Refused) as caught:
            cluster_cache.load(tmp_path / "config")
        assert caught.value.reason == "InsecureClusterInfo"

    def test_tokens_stay_text(self):
        """To Go, some tokens are numbers unless they are in quotes."""
        token = "012345.0123e56789012345"
        before = (KUBECONFIG % "QQ==").replace("012345.0123456789012345", token)
        text = cluster_cache.replaced(before, "one", INFO, A)
        assert f'"{token}"' in text


class TestKeepFresh:
    async def test_about_once_an_hour(self, clock, path):
        servers = Servers(clock, a=document(), b=document())
        search = searching.Discovery(clock, ask=servers)
        with structlog.testing.capture_logs() as logs:
            task = asyncio.ensure_future(cluster_cache.keep_fresh(path, search, clock, lambda: 0.5))
            await asyncio.sleep(0)
            await clock.advance(3599)
            assert servers.asked == []
            await clock.advance(1)
            await asyncio.sleep(0.01)
            assert servers.asked == [("a", True, False)]
            servers.answers = {"a": TROUBLE.NO_ANSWER, "b": TROUBLE.NO_ANSWER}
            await clock.advance(3600)
            await asyncio.sleep(0.01)
            servers.answers = {"a": document(), "b": document()}
            await clock.advance(3600)
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert [(row["log_level"], row.get("reason", row.get("changed"))) for row in logs] == [
            ("info", ["servers", "id"]),
            ("warning", "AllEndpointsMoved"),
        ]

    async def test_a_bug_ends_it(self, clock, path):
        async def ask(url, trust, token=None):
            raise errors.Misuse("bug")

        search = searching.Discovery(clock, ask=ask)
        with pytest.raises(errors.Misuse):
            await tls_cluster.while_time_passes(clock, cluster_cache.keep_fresh(path, search, clock), 5000.0)

    @pytest.mark.parametrize(("random", "seconds"), [(0.0, 2880), (0.5, 3600), (0.999, 4318.56)])
    async def test_the_hour_between_two_looks_has_its_jitter(self, clock, path, random, seconds):
        slept = []

        async def sleep(length):
            slept.append(length)
            raise asyncio.CancelledError

        clock.sleep = sleep
        with pytest.raises(asyncio.CancelledError):
            await cluster_cache.keep_fresh(path, searching.Discovery(clock), clock, lambda: random)
        assert slept == [pytest.approx(seconds)]
