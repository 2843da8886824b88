# SPDX-License-Identifier: Apache-2.0
"""Stands before the `rich` that comes with the tools of developers. Where Handfast is installed there is none, and none is found here either: structlog would load all of it."""

raise ImportError("Handfast is installed without rich")
