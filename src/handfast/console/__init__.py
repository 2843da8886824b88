# SPDX-License-Identifier: Apache-2.0
"""The console: pages for an operator's browser, made from what the API says with the operator's own credentials.

Holds: Opening and sessions, the doors against other sites, informers, live updates, and the pages with their templates and scripts.
Imports: api, bootstrap, client, console.pages, errors, rules, runtime, serving.
Never: It keeps no state, has no rights of its own, and judges nothing: `rules` does. It imports no other service.
Start: `handler.py`, the whole way of a request; then `pages/__init__.py`, how a page is added.
"""
