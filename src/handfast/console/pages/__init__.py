# SPDX-License-Identifier: Apache-2.0
"""The pages of the console, one module each, and the table of them.

Holds: For each page what it needs, what it shows and what it does; `table.py` lists them in the order of the navigation.
Imports: api, bootstrap, client, console, errors, rules, runtime.
Never: A page knows no session, no header and no other page. It judges nothing: `rules.console` and the other rules do.
Start: `overview.py`, the smallest whole page.

To add a page:

1. `PAGE = page.Page(path="/nodes", name="Nodes", title="Nodes", template="nodes.html", needs=(needs.NODES, ...), show=show, live=("summary",), rows=True)` in
   `pages/nodes.py`, and one line in `table.py`. `path="/nodes/*"` without a name is the page of one object: its name is `question.of`.
2. A need is a row in `needs.py`: a kind, its scope, and a view with the few fields that are shown. `known.of(needs.TOKENS)` is its informer (Nodes, Leases and the ledger have none: see `fleet`): iterate over it, `get` from
   it, `by_index` if it has indexes. A view has no field for a secret. `.document()` is what rules that read documents take.
3. `async def show(known, question) -> dict` gives the template its values. `known.now()` is the clock; `question` has `of`, `filter`, `sort`, `descending`, `start`, `count`, and
   `more` for a page's own words in the address. What is expensive is made once for all who look: `known.once("nodes", PAGE_NEEDS, make, seconds=1.0)`.
   What no informer has is asked with `known.client`, the operator's own. Facts of `handfast check`: `facts=True`, then `await known.looking.first(3.0)` and `known.facts()`.
4. Rows: `rows.select(all, question, text=..., columns={...})` gives `range`; put it into the values under that name. The template draws it in `{% block rows %}`, only `<tr>`s,
   each with `data-key`, inside `<table class="rows" data-rows="{{ question.path }}/rows" data-total="{{ range.total }}" data-from="{{ range.start }}">`. `column("name", "Node")` makes a
   heading that sorts; `pager(range, question)` below the table is what there is without JavaScript. `GET <page>/rows?from=&count=&sort=&filter=` answers with the same block.
   Table and pager lie in `<div class="listing">`, which the style hides while there are no rows. What is said then, and what is said of a search, is in `{% block beside %}<div id="beside" role="status">`: it comes with the rows.
5. The template extends `base.html` and fills `{% block content %}`. Every part that is to be live is a block of its own, in it, with one element whose id is the block's name:
   `{% block summary %}<p id="summary">…</p>{% endblock %}`. A block sees the page's values and nothing that was `set` or imported outside it.
6. Words in every template: `{{ name|shown }}` for whatever a stranger may have written; `{{ when(instant) }}`; `{{ within(duration) }}`; `{{ state("late") }}` (word, sign and colour; add words in
   `words.html`); `{{ empty("there are no nodes", "join one with …") }}`; `{{ trouble(each) }}` for each of `own_troubles`, the forbidden with its binding; `{{ command("handfast …") }}`;
   `{{ href("/nodes", question.query(sort="name")) }}`. Quote a name in a path: `{{ name|urlencode }}` twice is never needed.
7. Actions: `page.Action(path="/tokens/create", act=create, back="/tokens")` in `PAGE.actions`; `<form method="post" action="/tokens/create">{{ form_token("/tokens/create") }}…`. The door has
   checked Origin and token before `async def create(known, form) -> page.Outcome`. What it raises is shown with reason and next step. `Outcome(once={...})` is in the values as `once`
   on the next page, once: for what nobody may see twice. A form may lie in a live block.
8. `badge=` is the number in the navigation. No `style=` and no script in a template: the policy forbids them. Places come as SVG attributes. A script of a page: `{% block scripts %}`.
9. Tests: `tests/unit/console/pages/test_<page>.py` in process (`tests/unit/console/served.py` makes a console on a real API server), and `tests/scenarios/test_console_<page>.py` in Chromium.
"""
