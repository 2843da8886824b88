# SPDX-License-Identifier: Apache-2.0
"""Whole answers: their bytes, for every way of asking."""

from __future__ import annotations

import email.parser
from typing import Any

import aiohttp
import pytest
from aiohttp import test_utils, web

from handfast import errors
from handfast.serving import answers


def asked(
    method: str = "GET", version: aiohttp.HttpVersion = aiohttp.HttpVersion11, *, closing: bool = False
) -> web.Request:
    http = test_utils.make_mocked_request(method, "/", version=version)
    http._message = http._message._replace(should_close=closing)
    return http


def sent(answer: answers.Answer, http: web.Request) -> tuple[str, Any, bytes]:
    head, _, body = answer.bytes_for(http).partition(b"\r\n\r\n")
    start, _, rest = head.decode().partition("\r\n")
    return start, email.parser.HeaderParser().parsestr(rest), body


class TestBytes:
    def test_a_document(self) -> None:
        answer = answers.Answer(b"{}", status=201)
        answer.add("Audit-Id", "a-1")
        start, headers, body = sent(answer, asked())
        assert start == "HTTP/1.1 201 Created"
        assert body == b"{}"
        assert headers["Content-Type"] == "application/json"
        assert headers["Cache-Control"] == "no-cache, private"
        assert headers["Content-Length"] == "2"
        assert headers["Audit-Id"] == "a-1"
        assert headers["Date"].endswith(" GMT")
        assert "Connection" not in headers
        assert answer.keep_alive

    def test_other_headers(self) -> None:
        _, headers, _ = sent(answers.Answer(b"x", headers={"Content-Type": "text/plain"}), asked())
        assert headers["Content-Type"] == "text/plain"
        assert "Cache-Control" not in headers

    def test_the_same_header_again(self) -> None:
        answer = answers.Answer()
        answer.add("Warning", "one")
        answer.add("Warning", "two")
        assert sent(answer, asked())[1].get_all("Warning") == ["one", "two"]

    def test_head_has_the_length_of_get_and_no_body(self) -> None:
        _, headers, body = sent(answers.Answer(b"four"), asked("HEAD"))
        assert (headers["Content-Length"], body) == ("4", b"")

    @pytest.mark.parametrize("status", [204, 304])
    def test_without_a_body(self, status: int) -> None:
        _, headers, body = sent(answers.Answer(b"never", status=status), asked())
        assert body == b""
        assert "Content-Length" not in headers

    def test_a_status_without_a_name(self) -> None:
        assert sent(answers.Answer(status=599), asked())[0] == "HTTP/1.1 599 "


class TestConnections:
    def test_closed_when_asked_to(self) -> None:
        answer = answers.Answer()
        _, headers, _ = sent(answer, asked(closing=True))
        assert headers["Connection"] == "close"
        assert not answer.keep_alive

    def test_closed_by_the_server(self) -> None:
        answer = answers.Answer()
        answer.force_close()
        assert sent(answer, asked())[1]["Connection"] == "close"
        assert not answer.keep_alive

    def test_http_1_0(self) -> None:
        old = aiohttp.HttpVersion10
        start, headers, _ = sent(answers.Answer(), asked(version=old, closing=True))
        assert (start, headers["Connection"]) == ("HTTP/1.0 200 OK", "close")
        assert sent(answers.Answer(), asked(version=old))[1]["Connection"] == "keep-alive"


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: b", "a\nb", "a\rb", "a\0b"])
def test_a_header_cannot_break_its_line(value: str) -> None:
    answer = answers.Answer()
    answer.add("Warning", value)
    with pytest.raises(errors.Misuse, match="Warning"):
        answer.bytes_for(asked())


def test_stepwise_says_the_same() -> None:
    answer = answers.Answer(b"{}", status=404)
    answer.add("Warning", "one")
    answer.add("Warning", "two")
    answer.force_close()
    response = answer.stepwise()
    assert (response.status, response.body) == (404, b"{}")
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers.getall("Warning") == ["one", "two"]
    assert response.keep_alive is False
