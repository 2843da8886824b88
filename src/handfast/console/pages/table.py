# SPDX-License-Identifier: Apache-2.0
"""Every page, in the order of the navigation. It has nothing of its own."""

from __future__ import annotations

from typing import Any, Final

from handfast.console import needs
from handfast.console import page as page_module
from handfast.console.pages import (
    checks,
    ledger,
    machines,
    mesh,
    new_token,
    nodes,
    one_request,
    one_token,
    overview,
    requests,
    store,
    tokens,
)

PAGES: Final[tuple[page_module.Page, ...]] = (
    overview.PAGE,
    requests.PAGE,
    one_request.PAGE,
    tokens.PAGE,
    one_token.PAGE,
    new_token.PAGE,
    nodes.PAGE,
    nodes.ONE,
    machines.PAGE,
    machines.ONE,
    mesh.PAGE,
    mesh.WORKLOADS_PAGE,
    mesh.EDGES_PAGE,
    ledger.PAGE,
    ledger.ONE,
    ledger.RULE,
    checks.PAGE,
    store.PAGE,
)

# What all of them follow.
NEEDS: Final[tuple[needs.Need[Any], ...]] = tuple({need.name: need for page in PAGES for need in page.needs}.values())
