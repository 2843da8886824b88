# SPDX-License-Identifier: Apache-2.0
"""Any bytes are a document or a refusal; the fast check and the walk agree; YAML and JSON agree."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from handfast.api import status
from handfast.api.codec import decode, nesting
from handfast.api.schema import scalars, schema, structs
from tests.properties.test_protobuf_properties import documents

_KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=12,
)
_MESSAGES = ["core.v1.Pod", "core.v1.Secret", "coordination.v1.Lease", "apps.v1.Deployment", "rbac.v1.Role"]


@given(st.binary(max_size=100) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_a_document_or_a_refusal(body):
    for media in decode.MEDIA_TYPES:
        with contextlib.suppress(status.StatusError):
            document = decode.document(body, media)
            assert isinstance(document, dict)
            assert not nesting.is_too_deep(document)
            assert msgspec.json.encode(document)


_LIKE_YAML = st.text("{}[]:,-&*!|>'\"#%@ \n\tab1.e?<~", max_size=60)
# Of the characters alone one in a hundred is a document.
_LINES = st.sampled_from(
    ["a: 1", "a: {b: [1, 2]}", "b:", "  - a", "  a: 1", "c: 'x'", "? a", "# a", "", "a: &x 1", "d: |"]
)


@given(_LIKE_YAML | st.lists(_LINES, max_size=5).map("\n".join) | _LIKE_YAML.map("a: 1\nb: {}".format))
@settings(max_examples=150, deadline=None)
def test_anything_that_looks_like_yaml_is_a_document_or_a_refusal(text):
    with contextlib.suppress(status.StatusError):
        document = decode.document(text.encode(), decode.YAML)
        assert isinstance(document, dict)
        repeated = decode.duplicate_fields(text.encode(), decode.YAML, document)
        again, repeats = decode.document_and_duplicates(text.encode(), decode.YAML)
        assert (again, list(repeats)) == (document, repeated)


@given(st.dictionaries(_KEYS, _VALUES, max_size=4))
@settings(max_examples=60, deadline=None)
def test_json_survives(document):
    body = json.dumps(document).encode()
    assert decode.document(body) == document
    assert decode.duplicate_fields(body, decode.JSON, document) == []


@given(st.dictionaries(_KEYS, _VALUES, max_size=4))
@settings(max_examples=60, deadline=None)
def test_yaml_with_quotes_survives(document):
    # Quoted, so that no two opinions about plain scalars meet; numbers and the rest stay as they are.
    quoted = yaml.dump(document, Dumper=_Quoting, width=1000)
    assert decode.document(quoted.encode(), decode.YAML) == document


class _Quoting(yaml.SafeDumper):
    """Puts every string in double quotes."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Quoting.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


@given(st.lists(_KEYS, min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_a_repeated_key_is_always_found(keys):
    body = ("{" + ",".join(json.dumps(key) + ":1" for key in keys) + "}").encode()
    found = decode.duplicate_fields(body, decode.JSON, decode.document(body))
    assert set(found) == {key for key in keys if keys.count(key) > 1}


@st.composite
def nearly_right(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A document of a message in which one value somewhere is replaced by any other."""
    name = draw(st.sampled_from(_MESSAGES))
    document = draw(documents(name, 4))
    holders: list[Any] = [document]
    for holder in holders:
        children = holder.values() if isinstance(holder, dict) else holder
        holders += [child for child in children if isinstance(child, dict | list) and child]
    holder = draw(st.sampled_from(holders))
    if holder:
        key = draw(st.sampled_from(sorted(holder))) if isinstance(holder, dict) else len(holder) - 1
        holder[key] = draw(_VALUES)
    return name, document


@given(nearly_right())
@settings(max_examples=80, deadline=None)
def test_the_fast_check_and_the_walk_agree(drawn):
    assert structs.check(*drawn) == structs.walk(*drawn)


@given(st.text("YWJj=+/\n $", max_size=9))
@settings(max_examples=150, deadline=None)
def test_base64_is_accepted_as_the_fast_check_does(text):
    fast = structs.check("core.v1.Secret", {"data": {"k": text}}).type_error
    assert (fast or "") == scalars.base64_error(text)
    with contextlib.suppress(msgspec.ValidationError):
        msgspec.convert(text, bytes)
        assert scalars.base64_error(text) == ""


def test_every_message_accepts_nothing_and_null():
    for name in schema.message_names():
        if not schema.message(name).json_form:
            assert structs.check(name, {}) == structs.Findings()
            assert structs.walk(name, dict.fromkeys(schema.message(name).fields)) == structs.Findings()
            assert structs.check(name, dict.fromkeys(schema.message(name).fields)) == structs.Findings()
