# SPDX-License-Identifier: Apache-2.0
"""The words of the Kubernetes API: kinds, objects, errors, selectors, and what may be done to a document.

Holds: The table of kinds, and everything about a document that needs nothing but the document.
Imports: api.schema, errors.
Never: It decides nothing about trust and does no I/O: no clock, no log, no file but the packaged schema.
Start: `kinds.py`: every resource is a row there.
"""
