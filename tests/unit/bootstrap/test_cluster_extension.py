# SPDX-License-Identifier: Apache-2.0
"""The extension of a cluster: identifier and servers, there and back; whatever is wrong names its field."""

import pytest

from handfast import errors
from handfast.bootstrap import cluster_extension, kubeconfig

SERVERS = ("https://a:6443", "https://b:6443")


def cluster(extension, name=cluster_extension.NAME):
    return {"extensions": [{"name": "other", "extension": 5}, {"name": name, "extension": extension}]}


def test_there_and_back():
    written = {"extensions": [cluster_extension.entry("an-id", SERVERS)]}
    assert cluster_extension.read(written, "c") == cluster_extension.Extension("an-id", SERVERS)


@pytest.mark.parametrize(
    "body", [{}, {"extensions": None}, {"extensions": 5}, cluster({}, "another"), {"extensions": [5]}]
)
def test_a_cluster_that_others_described_has_none(body):
    assert cluster_extension.read(body, "c") == cluster_extension.NOTHING


BAD = [
    (5, "c.extensions[1].extension: must be a mapping"),
    ({}, "c.extensions[1].extension.servers: must be a list of URLs"),
    ({"servers": [5]}, "c.extensions[1].extension.servers[0]: required, an https URL"),
    ({"servers": ["https://a", "http://b"]}, 'c.extensions[1].extension.servers[1]: "http://b" is not a URL such as'),
    ({"servers": [], "id": 5}, "c.extensions[1].extension.id: must be a string"),
    ({"servers": [], "id": "a b"}, 'c.extensions[1].extension.id: "a b" is no identifier'),
]


@pytest.mark.parametrize(("extension", "problem"), BAD)
def test_what_is_wrong_names_its_field(extension, problem):
    with pytest.raises(cluster_extension.Malformed) as caught:
        cluster_extension.read(cluster(extension), "c")
    assert caught.value.problem.startswith(problem)
    assert not caught.value.credentials


def test_credentials_in_a_url_are_told_apart_and_not_repeated():
    with pytest.raises(cluster_extension.Malformed) as caught:
        cluster_extension.read(cluster({"servers": ["https://u:hunter2@a"]}), "c")
    assert caught.value.credentials
    assert "hunter2" not in caught.value.problem


class TestInAKubeconfig:
    """A kubeconfig keeps all servers of its cluster."""

    @staticmethod
    def made(beside):
        return kubeconfig.render(
            kubeconfig.Kubeconfig(
                context="x", cluster=kubeconfig.Cluster(name="c", server="https://a:6443", beside=beside), user=None
            )
        )

    def test_there_and_back(self):
        beside = cluster_extension.Extension("an-id", SERVERS)
        assert kubeconfig.parse(self.made(beside)).cluster.beside == beside

    def test_without_one_there_is_nothing(self):
        text = self.made(cluster_extension.NOTHING)
        assert "extensions" not in text
        assert kubeconfig.parse(text).cluster.beside == cluster_extension.NOTHING

    @pytest.mark.parametrize(
        ("server", "problem"),
        [("http://b", "is not a URL"), ("https://u:hunter2@b", "credentials do not belong in the URL")],
    )
    def test_a_server_that_cannot_be_one_is_refused(self, server, problem):
        text = self.made(cluster_extension.Extension("", ("https://a", "https://b.example"))).replace(
            "https://b.example", server
        )
        with pytest.raises(errors.Refused, match=problem) as caught:
            kubeconfig.parse(text)
        assert caught.value.reason == "BadKubeconfig"
        assert caught.value.message.startswith("kubeconfig: clusters[0].cluster.extensions[0].extension.servers[1]")
        assert "hunter2" not in caught.value.message
