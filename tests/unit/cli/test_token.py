# SPDX-License-Identifier: Apache-2.0
"""`handfast token`: kubeadm's words, forms and refusals, what is written to the server, and where secrets are printed."""

import datetime
import io
import json
import re
import sys

import pytest
import yaml

from handfast.api import status
from handfast.bootstrap import cluster_info, first_objects, token_limits, tokens
from handfast.cli import main, output
from handfast.client import anonymous, connection
from handfast.pki import authority, keys, names
from tests.unit.cli import reaching
from tests.unit.controllers.fake_api import FakeClient

TOKEN = "abcdef.0123456789abcdef"
SECRET = TOKEN.partition(".")[2]
GROUP = first_objects.NODE_GROUP
LONG_AGO = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
CA = authority.self_signed_ca(names.Subject(common_name="x"), keys.generate(), LONG_AGO).pem
HANDFAST = b'{"gitVersion":"v1.37.0+handfast-0.1.0"}'


class Reached(reaching.Reached):
    """Tokens to read and write, and a server that says its version and its time."""

    def __init__(self):
        self.client = FakeClient()
        self.client.transport = self  # type: ignore[assignment]
        self.connection = connection.Connection(server="https://10.0.0.1:6443", ca_pem=CA)
        self.version = HANDFAST
        self.date = ""
        self.asked = []

    async def request(self, method, path):
        self.asked.append((method, path))
        return self.version

    async def ask(self, url, trust, token=None):
        return anonymous.Answer(200, b"", self.date)

    def put(self, text=TOKEN, ttl=None, **more):
        now = datetime.datetime.now(datetime.UTC)
        until = None if ttl is None else now + datetime.timedelta(seconds=ttl)
        made = tokens.secret_document(
            tokens.parse(text), expiration=until, **{"usages": tokens.USAGES, "groups": [GROUP], **more}
        )
        made["metadata"] |= {"uid": "u", "resourceVersion": "1"}
        self.client.objects["secrets", "kube-system", made["metadata"]["name"]] = made
        return made

    def secret(self, token_id="abcdef"):
        return self.client.objects["secrets", "kube-system", f"bootstrap-token-{token_id}"]

    def ids(self):
        return sorted(name.removeprefix("bootstrap-token-") for _, _, name in self.client.objects)


@pytest.fixture
def reached(monkeypatch):
    with reaching.reached(monkeypatch, Reached()) as made:
        monkeypatch.setattr(anonymous, "ask", made.ask)
        yield made


def run(*arguments):
    return output.run(main.command, ["token", *map(str, arguments)])


def refusal(capsys, *arguments, code=2):
    """The lines of an error."""
    assert run(*arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    return dict(line.split(": ", 1) for line in err.splitlines())


class TestCreate:
    def test_with_nothing_said(self, reached, capsys):
        before = datetime.datetime.now(datetime.UTC)
        assert run("create") == 0
        out, err = capsys.readouterr()
        assert err == ""
        token = tokens.parse(out.rstrip("\n"))
        found = tokens.read(reached.secret(token.id))
        assert found.token == token
        assert found.usages == ("authentication", "signing")
        assert found.extra_groups == GROUP
        assert found.description == ""
        until = tokens.parse_expiration(found.expiration)
        assert until is not None
        assert abs(until - before - datetime.timedelta(hours=24)) < datetime.timedelta(seconds=30)
        assert "annotations" not in reached.secret(token.id)["metadata"]

    def test_with_everything(self, reached, capsys):
        words = ["--usages", "signing", "--usages", "authentication", "--groups", f"{GROUP},system:bootstrappers:x"]
        limits = ["--max-uses", "3", "--node", "w-*", "--node", "db,x", "--cidr", "10.0.0.0/8"]
        assert run("create", TOKEN, *words, *limits, "--ttl", "1h", "--description", "for x") == 0
        assert capsys.readouterr() == (f"{TOKEN}\n", "")
        found = tokens.read(reached.secret())
        assert found.usages == ("authentication", "signing")
        until = tokens.parse_expiration(found.expiration)
        assert until is not None
        left = until - datetime.datetime.now(datetime.UTC)
        assert abs(left - datetime.timedelta(hours=1)) < datetime.timedelta(seconds=30)
        assert found.extra_groups == f"{GROUP},system:bootstrappers:x"
        assert found.description == "for x"
        assert token_limits.read(reached.secret()) == token_limits.Limits(
            max_uses=3, nodes=("w-*", "db", "x"), cidrs=token_limits.parse_cidrs("10.0.0.0/8")
        )

    def test_for_signing_only_there_are_no_groups(self, reached, capsys):
        assert run("create", TOKEN, "--usages", "signing") == 0
        found = tokens.read(reached.secret())
        assert (found.usages, found.extra_groups) == (("signing",), None)

    def test_for_nothing(self, reached, capsys):
        assert run("create", TOKEN, "--usages", "", "--ttl", "0") == 2
        assert capsys.readouterr().err.startswith("error: --usages: the value is empty\n")

    @pytest.mark.parametrize("words", [(), ("--print-join-command",)])
    def test_on_a_terminal_is_said_what_its_holder_can_do(self, reached, capsys, monkeypatch, words):
        assert run("create", TOKEN, *words) == 0
        assert capsys.readouterr().err == ""
        reached.client.objects.pop(("secrets", "kube-system", "bootstrap-token-abcdef"))
        monkeypatch.setattr(output, "to_terminal", lambda: True)
        assert run("create", TOKEN, *words) == 0
        err = capsys.readouterr().err
        assert err.startswith("warning: whoever holds the token abcdef.… can join machines as nodes of any name")
        assert "until it expires at 20" in err
        assert "handfast token delete abcdef" in err
        assert SECRET not in err

    def test_without_an_end_it_is_warned_of(self, reached, capsys):
        assert run("create", TOKEN, "--ttl", "0") == 0
        out, err = capsys.readouterr()
        assert out == f"{TOKEN}\n"
        assert err.startswith("warning: whoever holds the token abcdef.… can join machines")
        assert "never expires" in err
        assert SECRET not in err
        assert tokens.read(reached.secret()).expiration == ""

    def test_what_is_limited_is_warned_of_as_such(self, reached, capsys):
        assert run("create", TOKEN, "--ttl", "0", "--node", "a") == 0
        assert "can join machines within its limits, as nodes, without end" in capsys.readouterr().err

    def test_a_signing_token_without_an_end_is_not(self, reached, capsys):
        assert run("create", TOKEN, "--ttl", "0", "--usages", "signing") == 0
        assert capsys.readouterr().err == ""

    def test_from_standard_input(self, reached, capsys, monkeypatch):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{TOKEN}\n".encode())))
        assert run("create", "-") == 0
        assert capsys.readouterr().out == f"{TOKEN}\n"

    def test_from_a_file(self, reached, capsys, tmp_path):
        (tmp_path / "t").write_text(TOKEN)
        assert run("create", "--token-file", tmp_path / "t") == 0
        assert capsys.readouterr().out == f"{TOKEN}\n"

    def test_an_id_that_is_taken(self, reached, capsys):
        reached.put()
        found = refusal(capsys, "create", "abcdef.ffffffffffffffff", code=1)
        assert found["error"] == 'a token with id "abcdef" already exists'
        assert found["reason"] == "TokenExists"
        assert tokens.read(reached.secret()).token == tokens.parse(TOKEN)

    def test_another_refusal(self, reached, capsys):
        def forbid(verb, plural, name):
            raise status.forbidden(plural, "", name, "no")

        reached.client.before = forbid
        assert refusal(capsys, "create", code=1)["reason"] == "Forbidden"

    # What kubeadm says; its exit code is 1 throughout.
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (
                ["bad"],
                'the bootstrap token "<hidden>" is not well formed',
            ),
            ([TOKEN.upper()], "is not well formed"),
            (
                ["--usages", "foo"],
                "invalid bootstrap token usage string: foo, valid usage options: signing,authentication",
            ),
            (["--usages", ""], "--usages: the value is empty"),
            (["--usages", ","], '--usages: the value "" is empty'),
            (
                ["--usages", "signing", "--groups", GROUP],
                'token groups cannot be specified unless --usages includes "authentication"',
            ),
            (
                ["--groups", "foo"],
                'bootstrap group "foo" is invalid: it must be system:bootstrappers: and 1 to 256 characters',
            ),
            (["--ttl", "x"], '--ttl: "x" is no duration'),
            (["--max-uses", "0"], '--max-uses: "0" is no number of uses'),
            (["--node", "A B"], '--node: "A B" is neither a node\'s name nor a glob'),
            (["--cidr", "10.0.0.1/8"], '--cidr: "10.0.0.1/8" has host bits set'),
            ([TOKEN, "--token-file", "f"], "a token and --token-file do not go together"),
            (["-o", "wide"], "invalid value for '-o'"),
        ],
    )
    def test_wrong_words(self, reached, capsys, arguments, message):
        assert message in refusal(capsys, "create", *arguments)["error"]
        assert reached.client.calls == []

    def test_for_machines(self, reached, capsys):
        assert run("create", TOKEN, "--usages", "signing", "--ttl", "0", "-o", "json") == 0
        assert json.loads(capsys.readouterr().out) == {
            "kind": "BootstrapToken",
            "apiVersion": "output.kubeadm.k8s.io/v1alpha3",
            "token": TOKEN,
            "usages": ["signing"],
        }
        assert run("create", "--print-join-command", "-o", "yaml") == 0
        found = yaml.safe_load(capsys.readouterr().out)
        assert f"--token {found['token']} " in found["joinCommand"]


class TestJoinCommand:
    def test_of_the_kubeconfig(self, reached, capsys):
        assert run("create", TOKEN, "--print-join-command") == 0
        found = capsys.readouterr().out
        assert re.fullmatch(
            rf"handfast join 10\.0\.0\.1:6443 --token {TOKEN} --discovery-token-ca-cert-hash sha256:[0-9a-f]{{64}}\n",
            found,
        )

    def test_of_cluster_info(self, reached, capsys):
        text = cluster_info.build(cluster_info.ClusterInfo(("https://a:1", "https://[::1]:2"), CA, "uid"))
        reached.client.put("configmaps", "cluster-info", "kube-public", data={"kubeconfig": text})
        assert run("create", TOKEN, "--print-join-command") == 0
        assert capsys.readouterr().out.startswith(f"handfast join a:1 '[::1]:2' --token {TOKEN} --discovery-token-ca")

    def test_without_a_ca_no_token_is_left_behind(self, reached, capsys):
        reached.connection = connection.Connection(server="https://10.0.0.1:6443")
        found = refusal(capsys, "create", "--print-join-command", code=1)
        assert found["error"] == "no CA certificates found in kubeconfig"
        assert reached.client.calls == []


class TestLimitsElsewhere:
    def test_another_server_does_not_enforce_them(self, reached, capsys):
        reached.version = b'{"gitVersion":"v1.36.4"}'
        assert run("create", TOKEN, "--max-uses", "1") == 0
        out, err = capsys.readouterr()
        assert out == f"{TOKEN}\n"
        assert err.startswith("warning: this API server is not Handfast's: it does not enforce --max-uses")
        assert reached.asked == [("GET", "/version")]

    def test_without_limits_nobody_asks(self, reached, capsys):
        reached.version = b'{"gitVersion":"v1.36.4"}'
        assert run("create", TOKEN) == 0
        assert capsys.readouterr().err == ""
        assert reached.asked == []


class TestList:
    def test_kubeadms_table(self, reached, capsys):
        reached.put("ghijkl.0123456789abcdef", ttl=7199, usages=["signing"], groups=[])
        reached.put()
        assert run("list") == 0
        out, err = capsys.readouterr()
        assert err == ""
        head, first, second = out.splitlines()
        assert head.split() == ["TOKEN", "TTL", "EXPIRES", "USAGES", "DESCRIPTION", "EXTRA", "GROUPS"]
        assert first.split() == [TOKEN, "<forever>", "<never>", "authentication,signing", "<none>", GROUP]
        assert re.fullmatch(r"ghijkl\.0123456789abcdef   1h {10}20\S+Z   signing {18}<none> {53}<none>", second), second

    def test_wide_adds_limits_and_uses(self, reached, capsys):
        reached.put()
        assert run("list", "-o", "wide") == 0
        assert capsys.readouterr().out.splitlines()[1].split()[-4:] == ["0", "<any>", "<any>", "<none>"]

    def test_json_is_what_kubeadm_prints(self, reached, capsys):
        reached.put(description="ü")
        assert run("list", "-o", "json") == 0
        assert capsys.readouterr().out == (
            '{\n    "kind": "BootstrapToken",\n    "apiVersion": "output.kubeadm.k8s.io/v1alpha3",\n'
            f'    "token": "{TOKEN}",\n    "description": "ü",\n    "usages": [\n        "authentication",\n'
            f'        "signing"\n    ],\n    "groups": [\n        "{GROUP}"\n    ]\n}}\n'
        )

    def test_yaml_has_a_document_for_each_token(self, reached, capsys):
        reached.put()
        reached.put("ghijkl.0123456789abcdef")
        assert run("list", "-o", "yaml") == 0
        found = list(yaml.safe_load_all(capsys.readouterr().out))
        assert [each["token"] for each in found] == [TOKEN, "ghijkl.0123456789abcdef"]

    def test_names_only_are_without_secrets(self, reached, capsys):
        reached.put()
        reached.put("ghijkl.0123456789abcdef")
        assert run("list", "-o", "name") == 0
        assert capsys.readouterr().out == "abcdef\nghijkl\n"

    def test_without_tokens_only_a_note_is_printed(self, reached, capsys):
        assert run("list") == 0
        assert capsys.readouterr() == ("", "note: there are no bootstrap tokens\n")

    def test_what_is_broken_is_told_and_left_out(self, reached, capsys):
        reached.put()
        reached.put("ghijkl.0123456789abcdef")["data"].pop("token-id")
        assert run("list", "-o", "name") == 0
        assert capsys.readouterr() == (
            "abcdef\n",
            "note: bootstrap Token Secret has no token-id data: bootstrap-token-ghijkl\n",
        )

    def test_all_broken(self, reached, capsys):
        reached.put()["data"].pop("token-id")
        assert run("list") == 0
        assert capsys.readouterr() == (
            "",
            "note: bootstrap Token Secret has no token-id data: bootstrap-token-abcdef\n",
        )

    def test_an_error_for_machines(self, reached, capsys):
        def forbid(verb, plural, name):
            raise status.forbidden(plural, "", name, "no")

        reached.client.before = forbid
        assert run("list", "-o", "json") == 1
        assert json.loads(capsys.readouterr().err)["reason"] == "Forbidden"


class TestDelete:
    def test_only_the_id_counts(self, reached, capsys):
        for text in (TOKEN, "ghijkl.0123456789abcdef", "kept00.0123456789abcdef"):
            reached.put(text)
        assert run("delete", "abcdef.ffffffffffffffff", "ghijkl", "zzzzzz", "ghijkl") == 0
        out, err = capsys.readouterr()
        assert err == ""
        assert out.splitlines() == [
            'bootstrap token "abcdef" deleted',
            'bootstrap token "ghijkl" deleted',
            'bootstrap token "zzzzzz" is not there',
        ]
        assert reached.ids() == ["kept00"]

    def test_for_machines(self, reached, capsys):
        reached.put()
        assert run("delete", "abcdef", "zzzzzz", "-o", "json") == 0
        assert json.loads(capsys.readouterr().out) == {"deleted": ["abcdef"], "missing": ["zzzzzz"]}

    @pytest.mark.parametrize("word", ["invalid-token", "ABCDEF", "abcdef.", f"{TOKEN}0", f".{SECRET}"])
    def test_wrong_words(self, reached, capsys, word):
        reached.put()
        found = refusal(capsys, "delete", "abcdef", word)
        assert found["error"] == "a token or id that was given is not well formed"
        assert SECRET not in found["error"]
        assert reached.ids() == ["abcdef"], "nothing is deleted before all words are read"

    def test_without_an_id_it_is_refused(self, reached, capsys):
        found = refusal(capsys, "delete")
        assert found["error"] == "missing argument 'ID|TOKEN...'"


def test_generated_tokens_are_well_formed_and_all_different(capsys):
    made = set()
    for _ in range(5):
        assert run("generate") == 0
        made.add(tokens.parse(capsys.readouterr().out.rstrip("\n")).text)
    assert len(made) == 5
    assert run("generate", "-o", "json") == 0
    tokens.parse(json.loads(capsys.readouterr().out)["token"])


class TestExplain:
    def test_a_good_one(self, reached, capsys):
        reached.put(ttl=7199)
        assert run("explain", "abcdef") == 0
        out, err = capsys.readouterr()
        assert err == ""
        assert [line.split()[:2] for line in out.splitlines()[:12]] == [
            ["CHECK", "RESULT"],
            *([check, "ok"] for check in ("exists", "type", "name", "secret", "expiry", "signing", "authentication")),
            *([check, "ok"] for check in ("groups", "uses", "restrictions", "rights")),
        ]
        assert "expires in 1h59m, at " in out
        assert out.endswith(
            "\ncan a machine verify the cluster with it?  yes\ncan a machine log in with it?              yes\n"
            "can a new machine join with it?            yes\n"
        )
        assert SECRET not in out

    def test_no_uses_left(self, reached, capsys):
        reached.put()["metadata"]["annotations"] = {
            token_limits.MAX_USES_KEY: "1",
            token_limits.COUNT_KEY: "1",
            token_limits.NODES_KEY: "w-*",
        }
        assert run("explain", "abcdef") == 0
        out = capsys.readouterr().out
        assert "can a machine log in with it?              yes\n" in out
        assert out.endswith("can a new machine join with it?            no\n")
        assert run("explain", "abcdef", "-o", "json") == 0
        assert json.loads(capsys.readouterr().out)["joining"] is False

    def test_who_may_join_depends(self, reached, capsys):
        reached.put()["metadata"]["annotations"] = {token_limits.NODES_KEY: "w-*"}
        assert run("explain", "abcdef") == 0
        assert "can a new machine join with it?            it depends: see restrictions\n" in capsys.readouterr().out

    def test_the_servers_clock_counts(self, reached, capsys):
        reached.put(ttl=60)
        later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
        reached.date = later.strftime("%a, %d %b %Y %H:%M:%S GMT")
        assert run("explain", "abcdef") == 0
        out = capsys.readouterr().out
        (line,) = [line for line in out.splitlines() if line.startswith("expiry")]
        assert re.search(r"fails +expired 5[89]m ago, at .*; the server's clock is 3\d\d\d s ahead of", line), line

    def test_a_token_that_is_not_there_is_good_for_nothing(self, reached, capsys):
        assert run("explain", "abcdef") == 1
        out = capsys.readouterr().out
        assert "exists   fails    there is no Secret kube-system/bootstrap-token-abcdef" in out
        assert out.count(" no\n") == 3

    @pytest.mark.parametrize("secret", [SECRET, "f" * 16])
    def test_a_whole_token_from_standard_input(self, reached, capsys, monkeypatch, secret):
        reached.put()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"abcdef.{secret}\n".encode())))
        assert run("explain", "-", "-o", "json") == 0
        found = json.loads(capsys.readouterr().out)
        same = secret == SECRET
        assert found["discovery"] is same
        assert next(row for row in found["checks"] if row["check"] == "secret") == {
            "check": "secret",
            "ok": same,
            "detail": f"token-secret {'is' if same else 'is not'} the one given",
        }

    def test_who_used_it(self, reached, capsys):
        made = reached.put()
        use = token_limits.Use(time=LONG_AGO, node="n1", key="sha256:" + "ab" * 32, source="10.0.0.9")
        reached.client.objects["secrets", "kube-system", "bootstrap-token-abcdef"] = token_limits.written(
            made, token_limits.record(made).with_use(use)
        )
        assert run("explain", "abcdef") == 0
        assert f"\n2026-01-01T00:00:00Z   n1     {use.key}   10.0.0.9\n" in capsys.readouterr().out
        assert run("explain", "abcdef", "-o", "yaml") == 0
        assert yaml.safe_load(capsys.readouterr().out)["uses"] == [
            {"time": "2026-01-01T00:00:00Z", "node": "n1", "key": use.key, "source": "10.0.0.9"}
        ]

    def test_uses_that_cannot_be_read(self, reached, capsys):
        reached.put()["metadata"]["annotations"] = {token_limits.USES_KEY: "x"}
        assert run("explain", "abcdef") == 0
        assert re.search(r"uses +fails +handfast.dev/uses: must be", capsys.readouterr().out)

    def test_wrong_words(self, reached, capsys):
        assert refusal(capsys, "explain", "x")["reason"] == "BadBootstrapToken"
