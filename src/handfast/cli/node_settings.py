# SPDX-License-Identifier: Apache-2.0
"""The flags that `handfast node` and `handfast join` share, each told with its variable, and what they say.

It does not know what a setting does; what is allowed is in `assembly.node_config`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from handfast.assembly import node_config

_F = TypeVar("_F", bound=Callable[..., Any])


def setting(name: str, about: str, default: str = "", **more: Any) -> Callable[[_F], _F]:
    """A flag. What the variable says is read by `node_config`, which names the origin in errors."""
    origin = f"${node_config.variable(name)}{f'; default: {default}' if default else ''}"
    return click.option(f"--{name}", default=None, help=f"{about}  [{origin}]", **{"metavar": "PATH", **more})


def resolved(flags: Mapping[str, Any], *names: str) -> node_config.NodeConfiguration:
    """The values of these settings. A command does not fail for the variable of another setting."""
    return node_config.resolve(flags, os.environ, names=names)


def named(flags: Mapping[str, Any], name: str) -> str | None:
    """What somebody said of a setting, as it was said; None for nothing."""
    value: str | None = flags[name.replace("-", "_")]
    return (os.environ.get(node_config.variable(name)) or None) if value is None else value
