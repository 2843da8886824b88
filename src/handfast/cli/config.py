# SPDX-License-Identifier: Apache-2.0
"""`handfast config`: what the settings are, where each comes from, and whether a file is good. It changes nothing."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import click

from handfast.assembly import config
from handfast.cli import output, settings, tables
from handfast.datadir import layout
from handfast.runtime import files

_KEYS = tuple(setting.key for setting in config.SETTINGS)


@click.group(name="config", short_help="Show or check the configuration.")
def command() -> None:
    """Show or check the configuration.

    A setting comes from its flag, else from its environment variable, else from the configuration file, else from its
    default.
    """


@command.command(short_help="Show every setting and where it comes from.")
@settings.directory_option("./handfast-data")
@settings.config_option
@settings.setting_options(*_KEYS, defaults=config.UP_DEFAULTS)
@output.format_option
def show(directory: str, config_file: str | None, form: str, **flags: Any) -> None:
    """Show every setting as `handfast up` with the same flags would see it, and where it comes from.

    With -o yaml the output is a configuration file.
    """
    resolved = settings.load(layout.Layout.at(directory), flags, config_file, config.UP_DEFAULTS)
    values = {key: _plain(resolved.values[key]) for key in _KEYS}
    whole = {"apiVersion": config.API_VERSION, "kind": config.KIND, **values}
    if form == "json":
        output.result(output.document({**whole, "origins": dict(resolved.origins)}, form))
    elif form == "yaml":
        output.result(output.document(whole, form))
    else:
        rows = [(key, _text(value), resolved.origins[key]) for key, value in values.items()]
        output.result(tables.table(("SETTING", "VALUE", "FROM"), rows, minor=("FROM", "VALUE")))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _text(value: Any) -> str:
    return ",".join(value) if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else str(value)


@command.command(short_help="Check a configuration file.")
@click.argument("file", type=click.Path())
@output.format_option
def validate(file: str, form: str) -> None:
    """Check a configuration file: its keys, and every value in it."""
    path = pathlib.Path(file)
    document = config.parse(files.read(path, limit=config.MAX_BYTES), file)
    config.resolve({}, {}, document, file)
    shadowed = [row.variable for row in config.SETTINGS if row.key in document and os.environ.get(row.variable)]
    if form == "text":
        output.result(f"{file} is good")
    else:
        output.result(output.document({"file": file, "valid": True, "shadowedBy": shadowed}, form))
    for variable in shadowed:
        output.note(f"${variable} is set and goes before this file")
