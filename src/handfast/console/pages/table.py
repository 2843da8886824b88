# SPDX-License-Identifier: Apache-2.0
"""Every page, in the order of the navigation. It has nothing of its own."""

from __future__ import annotations

from typing import Any, Final

from handfast.console import needs
from handfast.console import page as page_module
from handfast.console.pages import checks, mesh, overview, store

PAGES: Final[tuple[page_module.Page, ...]] = (
    overview.PAGE,
    mesh.PAGE,
    mesh.WORKLOADS_PAGE,
    mesh.EDGES_PAGE,
    store.PAGE,
    checks.PAGE,
)

# What all of them follow.
NEEDS: Final[tuple[needs.Need[Any], ...]] = tuple({need.name: need for page in PAGES for need in page.needs}.values())
