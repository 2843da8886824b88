# SPDX-License-Identifier: Apache-2.0
"""Admission webhooks: which are asked, and what their answers mean.

Holds: Configurations, matching, answers and patches.
Imports: api, errors.
Never: It calls nobody: the API server's `admission/webhook_client.py` does.
Start: `matching.py`.
"""
