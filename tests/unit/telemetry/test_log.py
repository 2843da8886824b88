# SPDX-License-Identifier: Apache-2.0
"""Log lines: one per thing, for machines or for people, and never a secret."""

import io
import json
import logging

import pytest
import structlog

from handfast.telemetry import colour, log


@pytest.fixture(autouse=True)
def _restored():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def logged(write, **settings):
    stream = io.BytesIO()
    log.configure(stream=stream, **{"terminal": False, **settings})
    write(structlog.get_logger())
    return stream.getvalue().decode()


def test_one_json_object_per_line():
    text = logged(lambda logger: (logger.info("one", n=1), logger.warning("two\nlines", path="/a")))
    first, second = (json.loads(line) for line in text.splitlines())
    assert (first["event"], first["level"], first["n"]) == ("one", "info", 1)
    assert first["time"].endswith("Z")
    assert second["event"] == "two\nlines"


def test_text_for_a_terminal_cannot_be_forged():
    text = logged(lambda logger: logger.info("a\nb\x1b[2J", name="x y", plain="z", n=[1]), terminal=True)
    assert text.count("\n") == 1
    assert "\x1b" not in text
    assert "INFO    a\\nb\\x1b[2J name='x y' plain=z n=[1]" in text


def test_on_a_terminal_the_level_has_colour(monkeypatch):
    monkeypatch.setattr(colour, "wanted", lambda _stream: True)
    assert " \x1b[33mWARNING\x1b[0m a\n" in logged(lambda logger: logger.warning("a"), terminal=True)
    assert " INFO    a\x1b[2m n=1\x1b[0m\n" in logged(lambda logger: logger.info("a", n=1), terminal=True)
    assert "\x1b" not in logged(lambda logger: logger.warning("a"))


def test_below_the_level_nothing_is_written():
    assert logged(lambda logger: (logger.debug("a"), logger.info("b")), level="warning") == ""
    assert "a" in logged(lambda logger: logger.debug("a"), level="debug")


@pytest.mark.parametrize(
    "name",
    [
        *("token", "secret", "password", "key", "authorization", "Authorization", "data", "string_data", "cookie"),
        *("client-key-data", "client_secret", "bearerToken", "private_key", "passphrase", "keys"),
    ],
)
def test_values_of_secret_names_are_taken_out(name):
    text = logged(lambda logger: logger.info("x", **{name: "hunter2", "deep": {"list": [{name: "hunter2"}]}}))
    assert "hunter2" not in text
    assert text.count(log.REDACTED) == 2


@pytest.mark.parametrize("name", ["token_id", "keyboard", "secret_name", "metadata", "count"])
def test_values_of_other_names_stay(name):
    assert "hunter2" in logged(lambda logger: logger.info("x", **{name: "hunter2"}))


@pytest.mark.parametrize(
    "text",
    [
        "header was Bearer hunter2hunter2",
        "bearer  hunter2hunter2 more",
        "token abcdef.hunter2hunter2ab of the join",
        "jwt eyJhbGciOiJIUzI1NiJ9.hunter2hunter2.hunter2-_x",
        "-----BEGIN EC PRIVATE KEY-----\nhunter2\n-----END EC PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----\nhunter2 cut short",
    ],
)
@pytest.mark.parametrize("terminal", [True, False])
def test_secrets_inside_texts_are_taken_out(text, terminal):
    written = logged(lambda logger: logger.info(text, note=text, deep=[{"a": text}]), terminal=terminal)
    assert "hunter2" not in written
    assert written.count(log.REDACTED) == 3


def test_the_id_of_a_bootstrap_token_stays():
    assert log.redact("abcdef.0123456789abcdef") == "abcdef.[redacted]"


def test_bytes_only_tell_their_length_and_objects_their_redacted_repr():
    class Thing:
        def __repr__(self):
            return "Thing(Bearer hunter2)"

    written = json.loads(logged(lambda logger: logger.info("x", raw=b"hunter2", thing=Thing(), none=None, many={1})))
    assert (written["raw"], written["thing"], written["none"]) == ("<7 bytes>", "Thing(Bearer [redacted]", None)
    assert written["many"] == [1]


def test_the_original_is_not_changed():
    original = {"token": "t", "list": [{"key": "k"}]}
    log.redact(original)
    assert original == {"token": "t", "list": [{"key": "k"}]}


def test_endless_nesting_ends():
    loop: list[object] = []
    loop.append(loop)
    assert "[too deep]" in json.dumps(log.redact(loop))


@pytest.mark.parametrize("terminal", [True, False])
def test_exceptions_come_with_their_trace_and_without_secrets(terminal):
    def fail():
        raise ValueError("Bearer hunter2")

    def write(logger):
        try:
            fail()
        except ValueError:
            logger.exception("failed")

    text = logged(write, terminal=terminal)
    assert "ValueError: Bearer [redacted]" in text
    assert "hunter2" not in text
    assert text.count("\n") == 1 or terminal


def test_fields_of_a_request_are_on_every_line_within():
    def write(logger):
        with log.fields(request="r1"):
            logger.info("a")
        logger.info("b")

    first, second = (json.loads(line) for line in logged(write).splitlines())
    assert first["request"] == "r1"
    assert "request" not in second


def test_lines_of_libraries_come_along_from_warning_on():
    def write(_logger):
        library = logging.getLogger("library")
        library.info("narrated")
        library.warning("trouble with %s", "x")
        library.log(35, "between the levels")

    lines = [json.loads(line) for line in logged(write).splitlines()]
    assert [(line["event"], line["logger"], line["level"]) for line in lines] == [
        ("trouble with x", "library", "warning"),
        ("between the levels", "library", "warning"),
    ]


def test_a_stream_that_is_gone_fails_nobody():
    stream = io.BytesIO()
    log.configure(stream=stream, terminal=False)
    logger = structlog.get_logger()
    stream.close()
    logger.info("lost")
    assert stream.closed
