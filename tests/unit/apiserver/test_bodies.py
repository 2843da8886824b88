# SPDX-License-Identifier: Apache-2.0
"""Reading bodies within limits, and what a document must be before anybody acts on it."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

import aiohttp
import msgspec
import pytest
from aiohttp import streams, web
from aiohttp.test_utils import make_mocked_request

from handfast.api import kinds, status
from handfast.api.codec import yaml_document
from handfast.api.validation import validation
from handfast.apiserver import bodies, limits, request

CONFIG_MAPS = kinds.row("configmaps")
SMALL = limits.Limits(body_bytes=10)
# Only for bodies that never end: on a busy machine anything can take that long.
HASTY = limits.Limits(body_bytes=10, body_seconds=0.02)
JSON = "application/json"
MEMORY = bodies.BodyMemory(limits.Limits())


def http(
    *parts: bytes, ended: bool = True, version: Any = aiohttp.HttpVersion11, **headers: str
) -> tuple[web.BaseRequest, streams.StreamReader]:
    payload = streams.StreamReader(mock.Mock(_reading_paused=False), 2**16, loop=asyncio.get_running_loop())
    for part in parts:
        payload.feed_data(part)
    if ended:
        payload.feed_eof()
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    writer = mock.Mock(write=mock.AsyncMock(), output_size=5)
    return make_mocked_request("POST", "/", sent, version=version, payload=payload, writer=writer), payload


async def refusal(sent: web.BaseRequest, limit: limits.Limits = SMALL) -> status.StatusError:
    with pytest.raises(status.StatusError) as caught:
        await bodies.read(sent, limit, MEMORY, "jane")
    return caught.value


class TestRead:
    async def test_arrived_with_the_head(self) -> None:
        assert await bodies.read(http(b"01234", b"56789")[0], SMALL, MEMORY, "jane") == b"0123456789"

    async def test_a_request_without_a_body_reads_as_empty(self) -> None:
        assert await bodies.read(http()[0], SMALL, MEMORY, "jane") == b""

    async def test_arrives_later(self) -> None:
        sent, payload = http(b"0123", ended=False)
        reading = asyncio.ensure_future(bodies.read(sent, SMALL, MEMORY, "jane"))
        await asyncio.sleep(0)
        payload.feed_data(b"45")
        await asyncio.sleep(0)
        payload.feed_eof()
        assert await reading == b"012345"

    @pytest.mark.parametrize("ended", [True, False])
    async def test_too_long(self, ended: bool) -> None:
        error = await refusal(http(b"0123456789", b"x", ended=ended)[0])
        assert (error.code, error.message) == (413, "Request entity too large: limit is 10")

    async def test_too_long_before_a_byte_of_it_arrived(self) -> None:
        sent, _ = http(ended=False, Content_Length="11", Expect="100-continue")
        assert (await refusal(sent)).code == 413
        sent.writer.write.assert_not_awaited()  # type: ignore[attr-defined]

    async def test_too_slow(self) -> None:
        error = await refusal(http(b"0", ended=False)[0], HASTY)
        assert error.code == 408
        assert error.message == "the body did not arrive within 0.02 seconds"

    async def test_broken_off(self) -> None:
        sent, payload = http(b"0", ended=False)
        payload.set_exception(web.RequestPayloadError("400, message: bad chunk"))
        error = await refusal(sent)
        assert error.code == 400
        assert error.message.startswith("the body cannot be read")

    async def test_broken_off_before_anybody_read(self) -> None:
        # Neither as a short body nor as none at all is it to be taken.
        for part in (b"0", b""):
            sent, payload = http(part, ended=False)
            payload.set_exception(web.RequestPayloadError("bad chunk"))
            payload.feed_eof()
            assert (await refusal(sent)).message == "the body cannot be read: bad chunk"

    @pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "GZIP", "identity, gzip", ""])
    async def test_a_compressed_body_is_refused(self, coding: str) -> None:
        error = await refusal(http(b"\x1f\x8b", Content_Encoding=coding)[0])
        assert (error.code, error.reason) == (415, "UnsupportedMediaType")
        assert f'the content encoding "{coding}"' in error.message

    async def test_identity_is_no_compression(self) -> None:
        assert await bodies.read(http(b"{}", Content_Encoding="Identity")[0], SMALL, MEMORY, "jane") == b"{}"


class TestExpect:
    async def test_a_client_that_waits_for_100_continue_gets_it(self) -> None:
        sent, payload = http(ended=False, Expect="100-Continue", Content_Length="2")

        def send(_: bytes) -> None:
            payload.feed_data(b"{}")
            payload.feed_eof()

        sent.writer.write.side_effect = send  # type: ignore[attr-defined]
        assert await bodies.read(sent, SMALL, MEMORY, "jane") == b"{}"
        sent.writer.write.assert_awaited_once_with(b"HTTP/1.1 100 Continue\r\n\r\n")  # type: ignore[attr-defined]
        assert sent.writer.output_size == 0

    async def test_not_invited_when_it_is_there(self) -> None:
        sent, _ = http(b"{}", Expect="100-continue")
        assert await bodies.read(sent, SMALL, MEMORY, "jane") == b"{}"
        sent.writer.write.assert_not_awaited()  # type: ignore[attr-defined]

    async def test_http_1_0_knows_no_invitation(self) -> None:
        sent, _ = http(ended=False, Expect="100-continue", version=aiohttp.HttpVersion10)
        assert (await refusal(sent, HASTY)).code == 408
        sent.writer.write.assert_not_awaited()  # type: ignore[attr-defined]

    async def test_something_else(self) -> None:
        error = await refusal(http(ended=False, Expect="miracles")[0])
        assert (error.code, error.message) == (417, 'the expectation "miracles" cannot be met')


class TestMode:
    @pytest.mark.parametrize(
        ("query", "mode"),
        [
            ("", "Warn"),
            ("fieldValidation=", "Warn"),
            ("fieldValidation=Strict", "Strict"),
            ("fieldValidation=Ignore", "Ignore"),
        ],
    )
    def test_the_mode_is_that_of_the_query_and_else_warn(self, query: str, mode: str) -> None:
        assert bodies.validation_mode(request.parse("POST", "/api/v1/nodes?" + query)) == mode

    def test_an_unknown_mode_is_refused(self) -> None:
        with pytest.raises(status.StatusError) as caught:
            bodies.validation_mode(request.parse("POST", "/api/v1/nodes?fieldValidation=strict"))
        assert caught.value.code == 422
        assert caught.value.causes[0].field == "fieldValidation"


def read_config_map(document: Any, mode: str = "Warn") -> tuple[dict[str, Any], list[str]]:
    body = document if isinstance(document, bytes) else msgspec.json.encode(document)
    return bodies.for_kind(body, JSON, CONFIG_MAPS, mode)


class TestForKind:
    def test_what_is_absent_is_filled_in(self) -> None:
        assert read_config_map({"data": {"a": "b"}}) == (
            {"data": {"a": "b"}, "apiVersion": "v1", "kind": "ConfigMap", "metadata": {}},
            [],
        )

    @pytest.mark.parametrize(
        ("document", "message"),
        [
            ({"apiVersion": "v2"}, "the API version in the data (v2) does not match the expected API version (v1)"),
            (
                {"kind": "Secret"},
                "the object provided is unrecognized (must be of type ConfigMap): found kind 'Secret'",
            ),
            ({"kind": {}}, "found kind {}"),
            ({"kind": 0}, "found kind 0"),
            ({"apiVersion": ["v1"]}, "does not match the expected API version"),
            ({"metadata": []}, "json: cannot unmarshal into Go struct field ConfigMap.metadata of type v1.ObjectMeta"),
            ({"metadata": "x"}, "v1.ObjectMeta"),
            ({"metadata": {"name": 5}}, "cannot unmarshal number into Go struct field"),
            ({"data": {"a": 1}}, "cannot unmarshal number"),
            ({"data": []}, "cannot unmarshal array"),
            (b"[]", "the body must be an object"),
            (b"", "json parse error"),
            (b"\xff", "json parse error"),
        ],
    )
    def test_a_body_that_is_no_such_object_is_refused(self, document: Any, message: str) -> None:
        with pytest.raises(status.StatusError) as caught:
            read_config_map(document)
        assert caught.value.code == 400
        assert message in caught.value.message

    def test_strict_refuses_unknown_and_repeated_fields(self) -> None:
        with pytest.raises(status.StatusError) as caught:
            read_config_map(b'{"nonsense":1,"data":{"a":"1","a":"2"}}', "Strict")
        assert caught.value.code == 400
        assert caught.value.message.endswith(
            'strict decoding error: unknown field "nonsense", duplicate field "data.a"'
        )

    def test_warn_drops_unknown_fields_and_says_so(self) -> None:
        document, warnings = read_config_map(b'{"nonsense":1,"data":{"a":"1","a":"2"}}')
        assert warnings == ['unknown field "nonsense"', 'duplicate field "data.a"']
        assert document["data"] == {"a": "2"}
        assert "nonsense" not in document

    def test_ignore_drops_unknown_fields_silently(self) -> None:
        document, warnings = read_config_map(b'{"nonsense":1,"data":{"a":"1","a":"2"}}', "Ignore")
        assert warnings == []
        assert document["data"] == {"a": "2"}
        assert "nonsense" not in document


def custom(**spec: Any) -> kinds.Kind:
    """A custom kind, whose `spec` has these fields."""
    fields = {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}
    return kinds.Kind(
        group="example.com", version="v1", kind="Foo", plural="foos", singular="foo", namespaced=True, schema=fields
    )


class TestOddFields:
    """What is said of unknown and repeated fields, in the words of Kubernetes."""

    FOO = custom(a={"type": "string"})
    BODY = b'{"metadata":{"name":"f","bad":1},"spec":{"a":"1","a":"2","zz":1},"foo":1}'

    def test_a_custom_object_is_refused_for_all_of_them_at_once(self) -> None:
        with pytest.raises(status.StatusError) as caught:
            bodies.for_kind(self.BODY, JSON, self.FOO, "Strict")
        assert (caught.value.code, caught.value.message) == (
            400,
            (
                'Foo in version "v1" cannot be handled as a Foo: strict decoding error: duplicate field "spec.a", '
                'unknown field "metadata.bad", unknown field "spec.zz", unknown field "foo"'
            ),
        )

    def test_a_wrong_type_of_a_custom_object_comes_first(self) -> None:
        with pytest.raises(status.StatusError, match="cannot unmarshal number"):
            bodies.for_kind(b'{"metadata":{"name":1},"a":1,"a":2}', JSON, self.FOO, "Strict")

    def test_of_a_custom_object_only_repeats_are_told_here(self) -> None:
        document, warnings = bodies.for_kind(self.BODY, JSON, self.FOO, "Warn")
        assert warnings == ['duplicate field "spec.a"']
        assert document["foo"] == 1

    @pytest.mark.parametrize("kind", [CONFIG_MAPS, FOO])
    def test_yaml_says_in_which_lines(self, kind: kinds.Kind) -> None:
        body = b"metadata:\n  name: f\n  name: g\nfoo: 1\nfoo: 2\n"
        with pytest.raises(status.StatusError) as caught:
            bodies.for_kind(body, "application/yaml", kind, "Strict")
        assert caught.value.message.endswith(
            'strict decoding error: yaml: unmarshal errors:\n  line 3: key "name" already set in map\n'
            '  line 5: key "foo" already set in map, unknown field "foo"'
        )

    @pytest.mark.parametrize("mode", ["Strict", "Warn", "Ignore"])
    @pytest.mark.parametrize(
        ("kind", "body", "says"),
        [
            (
                CONFIG_MAPS,
                b"metadata: {name: c}\nfoo: 1",
                "(/c; /v1, Kind=ConfigMap): .foo: field not declared in schema",
            ),
            (
                FOO,
                b"metadata: {name: f, namespace: ns, bad: 1}\nspec: {a: '1', zz: 1}",
                (
                    "(ns/f; example.com/v1, Kind=Foo): errors:\n  .metadata.bad: field not declared in schema\n"
                    "  .spec.zz: field not declared in schema"
                ),
            ),
        ],
    )
    def test_what_is_applied_has_no_unknown_fields(self, kind: kinds.Kind, body: bytes, says: str, mode: str) -> None:
        with pytest.raises(status.StatusError) as caught:
            bodies.for_apply(body, kind, mode)
        assert (caught.value.code, caught.value.message) == (400, f"failed to create typed patch object {says}")

    def test_what_is_applied_may_repeat_itself_unless_that_is_refused(self) -> None:
        body = b"metadata: {name: f}\nspec:\n  a: '1'\n  a: '2'\n"
        text = 'line 4: key "a" already set in map'
        assert bodies.for_apply(body, self.FOO, "Warn")[1] == [text]
        document, warnings = bodies.for_apply(body, self.FOO, "Ignore")
        assert (document["spec"], warnings) == ({"a": "2"}, [])
        with pytest.raises(status.StatusError) as caught:
            bodies.for_apply(body, self.FOO, "Strict")
        assert caught.value.message == f"error strict decoding YAML: yaml: unmarshal errors:\n  {text}"

    def test_a_kind_without_a_schema_takes_what_it_gets(self) -> None:
        free = kinds.Kind(group="a.b", version="v1", kind="C", plural="cs", singular="c", namespaced=False)
        document, warnings = bodies.for_apply(b"metadata: {name: f}\nany: {thing: 1}", free, "Strict")
        assert (document["any"], warnings) == ({"thing": 1}, [])

    @pytest.mark.parametrize("kind", [CONFIG_MAPS, FOO])
    def test_of_a_patch_the_patch_is_refused_and_nothing_of_the_object_is_quoted(self, kind: kinds.Kind) -> None:
        patched = {"metadata": {"name": "f"}, "foo": "hush"}
        with pytest.raises(status.StatusError) as caught:
            bodies.check_patched(patched, kind, "Strict", ['duplicate field "metadata.name"'])
        text = 'strict decoding error: duplicate field "metadata.name", unknown field "foo"'
        assert caught.value.code == 422
        assert [(cause.field, cause.message) for cause in caught.value.causes] == [("patch", f"Invalid value: {text}")]
        assert "hush" not in caught.value.message

    def test_a_wrong_type_in_a_patch_is_refused_as_the_patch(self) -> None:
        with pytest.raises(status.StatusError, match="cannot unmarshal number") as caught:
            bodies.check_patched({"metadata": {}, "data": {"a": 1}}, CONFIG_MAPS, "Ignore", [])
        assert caught.value.code == 422


class TestDocument:
    def test_checked_by_its_message(self) -> None:
        found = bodies.document(b'{"spec":{"replicas":3}}', JSON, "Scale", "autoscaling/v1", "autoscaling.v1.Scale")
        assert (found["kind"], found["spec"]) == ("Scale", {"replicas": 3})

    @pytest.mark.parametrize(
        "body", [b'{"spec":"x"}', b'{"spec":{"replicas":2147483648}}', b'{"spec":{"replicas":"3"}}']
    )
    def test_wrong_types(self, body: bytes) -> None:
        with pytest.raises(status.StatusError) as caught:
            bodies.document(body, JSON, "Scale", "autoscaling/v1", "autoscaling.v1.Scale")
        assert caught.value.code == 400

    def test_of_a_custom_object_only_the_metadata_is_known(self) -> None:
        found: dict[str, Any] = {"metadata": {"name": "a", "odd": 1}, "frob": 1}
        assert bodies.check_fields(found, "", "Strict") == []
        # Its own strategy drops what is odd, and tells of it.
        assert found == {"metadata": {"name": "a", "odd": 1}, "frob": 1}
        with pytest.raises(status.StatusError, match="cannot unmarshal number"):
            bodies.check_fields({"metadata": {"name": 1}}, "", "Ignore")

    @pytest.mark.parametrize("message", ["core.v1.ConfigMap", ""])
    @pytest.mark.parametrize("mode", ["Strict", "Ignore"])
    def test_nulls_in_metadata_are_settled_with_and_without_a_schema(self, message: str, mode: str) -> None:
        found: dict[str, Any] = {"metadata": {"labels": {"a": None}, "finalizers": [None], "ownerReferences": [None]}}
        assert bodies.check_fields(found, message, mode) == []
        assert found == {"metadata": {"labels": {"a": ""}, "finalizers": [""], "ownerReferences": [{}]}}

    def test_what_nulls_became_is_validated(self) -> None:
        document = {"metadata": {"name": "a", "namespace": "b", "finalizers": [None], "ownerReferences": [None]}}
        found, _ = read_config_map(document)
        texts = [str(cause.field) for cause in validation.create(CONFIG_MAPS, found)]
        assert "metadata.finalizers[0]" in texts
        assert "metadata.ownerReferences[0].uid" in texts

    @pytest.mark.parametrize("metadata", [{"labels": 5}, {"labels": {"a": 5}}, {"finalizers": "x"}, {"name": []}])
    def test_without_a_schema_metadata_has_its_types_all_the_same(self, metadata: Any) -> None:
        with pytest.raises(status.StatusError, match="cannot unmarshal") as caught:
            bodies.check_fields({"metadata": metadata}, "", "Ignore")
        assert caught.value.code == 400

    def test_yaml_is_parsed_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        parses = mock.Mock(side_effect=yaml_document.load_with_repeats)
        monkeypatch.setattr(yaml_document, "load_with_repeats", parses)
        _, warnings = bodies.for_kind(b"data: {a: x, a: z}", "application/yaml", CONFIG_MAPS, "Warn")
        assert warnings == ['line 1: key "a" already set in map']
        assert parses.call_count == 1


class TestRoom:
    LIMITS = limits.Limits(bodies_per_user_bytes=10, bodies_bytes=15)

    def test_a_share_for_each_user_and_a_bound_for_all(self) -> None:
        memory = bodies.BodyMemory(self.LIMITS)
        memory.take("jane", 10)
        for user, size in (("jane", 1), ("joe", 6)):
            with pytest.raises(status.StatusError) as caught:
                memory.take(user, size)
            assert (caught.value.code, caught.value.retry_after) == (429, 1)
        memory.take("joe", 5)
        memory.give_back("jane", 10)
        memory.take("joe", 5)
        memory.give_back("joe", 10)
        memory.take("jane", 10)
        assert memory._taken == {"jane": 10}

    def test_lifted_limits_leave_room_for_everybody(self) -> None:
        memory = bodies.BodyMemory(limits.Limits(lifted=True, bodies_per_user_bytes=1, bodies_bytes=1))
        for user in ("jane", "joe", "jane"):
            memory.take(user, 100)
        assert memory._taken == {"jane": 200, "joe": 100}

    async def test_what_arrives_is_counted_until_it_is_there(self) -> None:
        memory = bodies.BodyMemory(limits.Limits(bodies_per_user_bytes=4))
        first, payload = http(b"0123", ended=False)
        reading = asyncio.ensure_future(bodies.read(first, limits.Limits(), memory, "jane"))
        await asyncio.sleep(0)
        with pytest.raises(status.StatusError, match="too many large bodies"):
            await bodies.read(http(b"45", ended=False)[0], limits.Limits(), memory, "jane")
        payload.feed_eof()
        assert await reading == b"0123"
        assert memory._taken == {}
