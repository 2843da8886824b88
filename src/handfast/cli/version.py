# SPDX-License-Identifier: Apache-2.0
"""`handfast version`: which program this is. It asks no server."""

from __future__ import annotations

import importlib.metadata
import platform

import click

from handfast.cli import output


@click.command(name="version", short_help="Show the version.")
@output.format_option
def command(form: str) -> None:
    """Show the version of this program and of the Python it runs on."""
    facts = {"handfast": importlib.metadata.version("handfast"), "python": platform.python_version()}
    if form == "text":
        output.result(f"handfast {facts['handfast']} (Python {facts['python']})")
    else:
        output.result(output.document(facts, form))
