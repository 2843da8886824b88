# SPDX-License-Identifier: Apache-2.0
"""How tokens are shown: kubeadm's columns and documents, byte for byte, and join commands."""

import base64
import dataclasses
import datetime
import json

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from handfast import errors
from handfast.bootstrap import token_limits, token_views, tokens

NOW = datetime.datetime(2026, 11, 15, 18, 5, 44, tzinfo=datetime.UTC)
GROUP = "system:bootstrappers:kubeadm:default-node-token"
KEY = "sha256:" + "ab" * 32


def secret(text="abcdef.0123456789abcdef", *, ttl=None, usages=tokens.USAGES, groups=(GROUP,), description="", **notes):
    document = tokens.secret_document(
        tokens.parse(text),
        expiration=None if ttl is None else NOW + datetime.timedelta(seconds=ttl),
        usages=usages,
        groups=groups,
        description=description,
    )
    if notes:
        document["metadata"]["annotations"] = {
            f"handfast.dev/{key.replace('_', '-')}": value for key, value in notes.items()
        }
    return document


def yaml_documents(text):
    """Read by another writer's reader; what YAML cannot hold at all was escaped."""
    return yaml.safe_load_all(text)


def views(*documents):
    return [token_views.view(document) for document in documents]


# What kubeadm 1.36.4 printed.
HEAD = (
    "TOKEN                     TTL         EXPIRES                USAGES                   "
    "DESCRIPTION                                                EXTRA GROUPS"
)


class TestTable:
    def test_kubeadms_line(self):
        found = token_views.table(
            views(secret("012345.0123456789abcdef", ttl=0, usages=["authentication"])), NOW
        ).splitlines()
        line = (
            "012345.0123456789abcdef   0s          2026-11-15T18:05:44Z   authentication           "
            f"<none>                                                     {GROUP}"
        )
        assert found == [HEAD, line]

    def test_a_token_without_an_end(self):
        """Alone, as kubeadm prints it."""
        found = token_views.table(views(secret("8lbrjr.s8zlro7vs5y6n81m")), NOW).splitlines()
        assert found[1] == (
            "8lbrjr.s8zlro7vs5y6n81m   <forever>   <never>   authentication,signing   "
            f"<none>                                                     {GROUP}"
        )

    def test_no_line_is_shifted(self):
        rows = views(secret(), secret("8lbrjr.s8zlro7vs5y6n81m", ttl=7200)), NOW
        head, *lines = token_views.table(*rows).splitlines()
        assert head == HEAD
        assert len(lines) == 2
        for line in lines:
            assert line.index("authentication,signing") == head.index("USAGES")
            assert line.index(GROUP) == head.index("EXTRA GROUPS")

    def test_nothing_is_nothing(self):
        assert token_views.table([], NOW) == ""
        found = token_views.table(views(secret(usages=(), groups=())), NOW).splitlines()[1]
        assert found.split() == ["abcdef.0123456789abcdef", "<forever>", "<never>", "<none>", "<none>", "<none>"]

    def test_a_description_that_another_program_wrote_is_cut_at_the_limit(self):
        document = secret(description="x")
        document["data"]["description"] = base64.b64encode(b"y" * 5000).decode()
        found = token_views.table(views(document), NOW)
        assert "y" * 255 + "…" in found
        assert "y" * 256 not in found

    def test_a_description_stays_in_its_cell(self):
        found = token_views.table(views(secret(description="a\nb\x1b[31mc")), NOW)
        assert "a b [31mc" in found
        assert len(found.splitlines()) == 2

    def test_the_wide_table_has_limits_and_uses(self):
        uses = json.dumps([{"time": "2026-11-15T18:00:00Z", "node": "worker-1", "key": KEY, "source": "10.0.0.7"}])
        limited = secret(
            max_uses="3", allowed_nodes="worker-*,db", allowed_cidrs="10.0.0.0/8", uses=uses, use_count="1"
        )
        found = token_views.table(views(limited, secret("123456.0123456789abcdef")), NOW, wide=True).splitlines()
        assert found[0].split()[-6:] == ["GROUPS", "USES", "NODES", "FROM", "LAST", "USE"]
        assert found[1].endswith("   1/3       worker-*,db   10.0.0.0/8   2026-11-15T18:00:00Z worker-1 from 10.0.0.7")
        assert found[2].endswith("   0         <any>         <any>        <none>")

    def test_limits_that_cannot_be_read_do_not_hide_a_token(self):
        (shown,) = views(secret(max_uses="many"))
        assert "max-uses" in shown.unreadable
        assert token_views.table([shown], NOW, wide=True).splitlines()[1].split()[-4:] == ["<invalid>"] * 4
        assert "max-uses" in token_views.document(shown)["handfast"]["unreadable"]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-2, "<invalid>"),
        (-1.5, "0s"),
        (-1, "0s"),
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (3599, "59m"),
        (3600, "1h"),
        (7199, "1h"),
        (86399, "23h"),
        (86400, "1d"),
        (364.9 * 86400, "364d"),
        (365 * 86400, "1y"),
        (1000 * 86400, "2y"),
    ],
)
def test_short_duration(seconds, shown):
    assert token_views.short_duration(datetime.timedelta(seconds=seconds)) == shown


class TestDocuments:
    def test_json_as_kubeadm_writes_it(self):
        (shown,) = views(secret())
        assert token_views.documents([token_views.document(shown)], "json") == (
            "{\n"
            '    "kind": "BootstrapToken",\n'
            '    "apiVersion": "output.kubeadm.k8s.io/v1alpha3",\n'
            '    "token": "abcdef.0123456789abcdef",\n'
            '    "usages": [\n'
            '        "authentication",\n'
            '        "signing"\n'
            "    ],\n"
            '    "groups": [\n'
            f'        "{GROUP}"\n'
            "    ]\n"
            "}"
        )

    def test_yaml_as_kubeadm_writes_it(self):
        shown = views(secret(), secret("ghijkl.0123456789abcdef", ttl=60, groups=(), description="x"))
        assert token_views.documents(map(token_views.document, shown), "yaml") == (
            "apiVersion: output.kubeadm.k8s.io/v1alpha3\n"
            "groups:\n"
            f"- {GROUP}\n"
            "kind: BootstrapToken\n"
            "token: abcdef.0123456789abcdef\n"
            "usages:\n"
            "- authentication\n"
            "- signing\n"
            "---\n"
            "apiVersion: output.kubeadm.k8s.io/v1alpha3\n"
            "description: x\n"
            'expires: "2026-11-15T18:06:44Z"\n'
            "kind: BootstrapToken\n"
            "token: ghijkl.0123456789abcdef\n"
            "usages:\n"
            "- authentication\n"
            "- signing"
        )

    def test_a_token_that_looks_like_a_number_is_quoted(self):
        text = "012345.0123e56789012345"
        written = token_views.documents(map(token_views.document, views(secret(text))), "yaml")
        assert f'token: "{text}"' in written
        assert yaml.safe_load(written)["token"] == text

    @given(st.text(), st.text(alphabet="ab :#'-.,*\n\"", max_size=12))
    @example("yes", "Null")
    @example("a: b", "a:")
    @example(" a", "a ")
    def test_whatever_is_written_is_read_again(self, one, other):
        uses = [{"time": "2026-11-15T18:00:00Z", "node": other, "key": KEY, "source": one}]
        given = {"description": one, "used": 3, "handfast": {"nodes": [other, "w-*"], "uses": uses * 2, "n": 1}}
        written = token_views.documents([given, {"token": "a"}], "yaml")
        assert list(yaml_documents(written)) == [given, {"token": "a"}]

    def test_several_json_documents_are_concatenated(self):
        shown = views(secret(), secret("ghijkl.0123456789abcdef"))
        written = token_views.documents(map(token_views.document, shown), "json")
        first, second = written.split("}\n{")
        found = [json.loads(text)["token"] for text in (first + "}", "{" + second)]
        assert found == ["abcdef.0123456789abcdef", "ghijkl.0123456789abcdef"]

    def test_what_kubernetes_has_no_word_for(self):
        uses = json.dumps([{"time": "2026-11-15T18:00:00Z", "node": "n", "key": KEY, "source": "10.0.0.7"}])
        (shown,) = views(secret(max_uses="3", allowed_nodes="n*", allowed_cidrs="fd00::/8", uses=uses, use_count="2"))
        assert token_views.document(shown)["handfast"] == {
            "maxUses": 3,
            "nodes": ["n*"],
            "cidrs": ["fd00::/8"],
            "used": 2,
            "uses": [{"time": "2026-11-15T18:00:00Z", "node": "n", "key": KEY, "source": "10.0.0.7"}],
        }


class TestView:
    def test_a_view_has_all_that_the_secret_says(self):
        (shown,) = views(secret(ttl=60, description="d"))
        assert shown == token_views.View(
            token=tokens.parse("abcdef.0123456789abcdef"),
            expires=NOW + datetime.timedelta(seconds=60),
            usages=("authentication", "signing"),
            groups=(GROUP,),
            description="d",
            limits=token_limits.Limits(),
        )
        assert "0123456789abcdef" not in repr(shown)

    def test_groups_under_their_old_name(self):
        document = secret(groups=())
        document["data"]["auth-groups"] = secret()["data"]["auth-extra-groups"]
        assert token_views.view(document).groups == (GROUP,)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"token-id": None}, "bootstrap Token Secret has no token-id data: bootstrap-token-abcdef"),
            ({"token-secret": None}, "bootstrap Token Secret has no token-secret data: bootstrap-token-abcdef"),
            (
                {"token-id": "YWFhYWFh"},
                """bootstrap token name is not of the form 'bootstrap-token-(token-id)'. Actual: "bootstrap-token-""",
            ),
            ({"expiration": "c29vbg=="}, 'can\'t parse expiration time of bootstrap token "bootstrap-token-abcdef"'),
        ],
    )
    def test_what_kubeadm_does_not_list(self, change, message):
        document = secret()
        document["data"] = {key: value for key, value in (document["data"] | change).items() if value is not None}
        with pytest.raises(errors.Refused) as refused:
            token_views.view(document)
        assert refused.value.message.startswith(message)
        assert "0123456789abcdef" not in refused.value.message


def test_join_command():
    token = tokens.parse("abcdef.0123456789abcdef")
    assert token_views.join_command(["https://10.0.0.1:6443"], token, ["sha256:aa"]) == (
        "handfast join 10.0.0.1:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:aa"
    )
    assert token_views.join_command(["https://a", "https://[::1]:7/b"], token, ["sha256:aa", "sha256:bb"]) == (
        "handfast join a:443 'https://[::1]:7/b' --token abcdef.0123456789abcdef "
        "--discovery-token-ca-cert-hash sha256:aa --discovery-token-ca-cert-hash sha256:bb"
    )


def test_a_view_can_be_changed_only_by_copying():
    (shown,) = views(secret())
    with pytest.raises(dataclasses.FrozenInstanceError):
        shown.description = "x"
