# SPDX-License-Identifier: Apache-2.0
"""Logs, metrics and health.

Holds: How a process tells what it does.
Imports: errors, runtime.
Never: It serves nothing: the admin endpoint is `serving.admin`.
Start: `log.py`, `metrics.py`.
"""
