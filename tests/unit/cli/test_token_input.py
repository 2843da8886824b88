# SPDX-License-Identifier: Apache-2.0
"""Tokens and lifetimes from a command line: where they may come from, and what is refused without repeating a secret."""

import datetime
import io
import os
import sys

import pytest

from handfast import errors
from handfast.cli import output, token_input

TOKEN = "abcdef.0123456789abcdef"


@pytest.fixture
def typed(monkeypatch):
    """Puts text on standard input."""

    def put(data):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return put


class TestTtl:
    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ("24h", 86400),
            ("1h30m", 5400),
            ("90s", 90),
            ("7d", 604800),
            ("1.5h", 5400),
            ("1500ms", 1.5),
            ("1m500ms", 60.5),
            ("36500d", 36500 * 86400),
        ],
    )
    def test_a_lifetime_is_the_sum_of_its_parts(self, text, seconds):
        assert token_input.parse_ttl(text, "--ttl") == datetime.timedelta(seconds=seconds)

    @pytest.mark.parametrize("text", ["0", "0s", "0h", "0ms"])
    def test_for_ever(self, text):
        assert token_input.parse_ttl(text, "--ttl") is None

    @pytest.mark.parametrize(
        "text", ["", "1", "-1h", "soon", "1h ", "0.1s", "36501d", "1w", "999ms", "1sm", "١h", "1h-1m", "0h0m"]
    )
    def test_what_is_no_lifetime_is_refused(self, text):
        with pytest.raises(output.Usage, match="--ttl") as refused:
            token_input.parse_ttl(text, "--ttl")
        assert "36500d" in (refused.value.hint or "")

    def test_a_token_expires_its_lifetime_after_now(self):
        now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
        assert token_input.instant_after(now, None) is None
        assert token_input.instant_after(now, datetime.timedelta(hours=1)) == now + datetime.timedelta(hours=1)


class TestFirstToken:
    def test_without_a_flag_it_is_random(self):
        assert token_input.first_token(None, None) is None

    def test_an_empty_flag_asks_for_none(self):
        assert token_input.first_token("", None) == ""

    def test_as_an_argument(self):
        assert token_input.first_token(TOKEN, None) == TOKEN

    def test_from_standard_input(self, typed):
        typed(f"{TOKEN}\n".encode())
        assert token_input.first_token("-", None) == TOKEN
        typed(f" {TOKEN}\r\n".encode())
        assert token_input.first_token(None, "-") == TOKEN

    def test_from_a_file(self, tmp_path):
        (tmp_path / "t").write_text(f"{TOKEN}\n")
        assert token_input.first_token(None, str(tmp_path / "t")) == TOKEN

    def test_from_a_pipe(self):
        reading, writing = os.pipe()
        os.write(writing, TOKEN.encode())
        os.close(writing)
        try:
            assert token_input.first_token(None, f"/dev/fd/{reading}") == TOKEN
        finally:
            os.close(reading)

    def test_one_or_the_other(self):
        with pytest.raises(output.Usage, match="--token and --token-file do not go together"):
            token_input.first_token(TOKEN, "f")

    @pytest.mark.parametrize("text", ["abcdef.0123456789ABCDEF", "abcdef", "ABCDEF.0123456789abcdef"])
    def test_what_is_none_is_not_repeated(self, text):
        with pytest.raises(output.Usage, match="--token: the bootstrap token") as refused:
            token_input.first_token(text, None)
        assert refused.value.reason == "BadBootstrapToken"
        assert text not in f"{refused.value.message} {refused.value.hint}"

    @pytest.mark.parametrize(("data", "why"), [(b"", "is empty"), (b" \n", "is empty"), (b"x" * 4097, "is too long")])
    def test_files_that_hold_none(self, tmp_path, data, why):
        (tmp_path / "t").write_bytes(data)
        with pytest.raises(output.Usage, match=f"--token-file: .*/t {why}"):
            token_input.first_token(None, str(tmp_path / "t"))

    def test_octets_that_are_no_text(self, tmp_path):
        (tmp_path / "t").write_bytes(b"\xff\xfe")
        with pytest.raises(output.Usage, match="is not well formed"):
            token_input.first_token(None, str(tmp_path / "t"))

    def test_a_file_that_is_not_there(self, tmp_path):
        with pytest.raises(errors.Refused, match=r"--token-file: cannot read .*: no such file or directory") as refused:
            token_input.first_token(None, str(tmp_path / "t"))
        assert (refused.value.reason, refused.value.hint) == ("FileNotFound", "name another file with --token-file")

    def test_an_empty_standard_input(self, typed):
        typed(b"")
        with pytest.raises(output.Usage, match="--token: standard input is empty"):
            token_input.first_token("-", None)


def test_what_a_holder_can_do():
    text = token_input.holder_warning("abcdef", "2030-01-01T00:00:00Z")
    assert "abcdef.…" in text
    assert "until it expires at 2030-01-01T00:00:00Z" in text
    assert text.endswith("handfast token delete abcdef")
    assert "never expires" in token_input.holder_warning("abcdef", "")


@pytest.mark.parametrize(
    "servers, alone",
    [
        ([], False),
        (["https://127.0.0.1:7443"], True),
        (["https://[::1]:7443", "https://localhost:7443"], True),
        (["https://127.0.0.1:7443", "https://192.0.2.1:7443"], False),
        (["https://api.example:7443"], False),
    ],
)
def test_servers_that_only_this_machine_reaches(servers, alone):
    text = token_input.only_here(servers)
    assert bool(text) is alone
    assert ("--listen 0.0.0.0:7443" in text) is alone
