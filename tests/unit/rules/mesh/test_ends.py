# SPDX-License-Identifier: Apache-2.0
"""How the two ends of a call are written."""

from __future__ import annotations

import pytest

from handfast.rules.mesh import ends


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("shop/web", "sa/shop/web"),
        ("sa/shop/web", "sa/shop/web"),
        ("pod/shop/web.0", "pod/shop/web.0"),
        ("none", "none"),
    ],
)
def test_a_client_is_an_account_unless_it_says_otherwise(text, canonical):
    assert str(ends.client(text)) == canonical


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("shop/db", "svc/shop/db"),
        ("shop/db:5432", "svc/shop/db:5432"),
        ("svc/shop/db:1", "svc/shop/db:1"),
        ("pod/shop/db-0:65535", "pod/shop/db-0:65535"),
        ("sa/shop/db", "sa/shop/db"),
        # Two parts are a namespace and a name, whatever they are called.
        ("pod/db", "svc/pod/db"),
    ],
)
def test_a_server_is_a_service_unless_it_says_otherwise(text, canonical):
    assert str(ends.server(text)) == canonical


@pytest.mark.parametrize(
    "text", ["", "web", "svc/shop/web", "a/b/c/d", "Shop/web", "shop/", "/web", "shop/web:80", "None"]
)
def test_what_is_no_client_is_refused_with_what_is_allowed(text):
    with pytest.raises(ends.BadEnd) as refused:
        ends.client(text)
    assert "pod/NS/POD" in (refused.value.hint or "")


@pytest.mark.parametrize(
    "text", ["none", "db", "node/shop/db", "shop/db:", "shop/db:0", "shop/db:65536", "shop/db:http", "a/b:1:2"]
)
def test_what_is_no_server_is_refused_with_what_is_allowed(text):
    with pytest.raises(ends.BadEnd) as refused:
        ends.server(text)
    assert "svc/NS/SERVICE" in (refused.value.hint or "")
