// SPDX-License-Identifier: Apache-2.0
// A window on a long table: only the rows that are seen are asked for, sorted and filtered by the server. Without it there are links to the next rows.
const PAGE = 100;
for (const table of document.querySelectorAll("table.rows")) new (class {
  constructor() {
    this.body = table.tBodies[0];
    this.total = +table.dataset.total;
    this.from = +table.dataset.from;
    this.query = new URLSearchParams(document.body.dataset.query);
    this.query.delete("from"); this.query.delete("count");
    this.pages = new Map([[Math.floor(this.from / PAGE), [...this.body.rows]]]);
    this.here = -1; this.asked = new Set(); this.age = 0;
    this.height = 36;
    this.window = document.createElement("div");
    this.window.className = "window"; this.window.tabIndex = 0;
    this.window.setAttribute("role", "group");
    this.window.setAttribute("aria-label", table.getAttribute("aria-label") || "Rows");
    table.before(this.window); this.window.append(table);
    table.setAttribute("aria-rowcount", this.total + 1);
    this.above = this.spacer(); this.below = this.spacer();
    this.pager = document.querySelector("nav.pager");
    this.window.addEventListener("scroll", () => requestAnimationFrame(() => this.draw()), { passive: true });
    this.window.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("rows", () => this.renew());
    const filter = document.querySelector("form.filter input[type=search]");
    if (filter) filter.addEventListener("input", () => { clearTimeout(this.timer); this.timer = setTimeout(() => this.filter(filter.value), 200); });
    this.draw();
    if (this.from) this.window.scrollTop = this.from * this.height;
  }
  spacer() {
    const row = document.createElement("tr");
    row.setAttribute("aria-hidden", "true"); row.className = "spacer";
    row.insertCell();
    return row;
  }
  async page(n) {
    if (this.asked.has(n)) return;
    this.asked.add(n);
    const age = this.age, query = new URLSearchParams(this.query);
    query.set("from", n * PAGE); query.set("count", PAGE);
    try {
      const answer = await fetch(`${table.dataset.rows}?${query}`, { credentials: "same-origin" });
      if (!answer.ok || age !== this.age) return;
      const html = await answer.text();
      if (age !== this.age) return;
      this.total = +answer.headers.get("Handfast-Total");
      const made = new DOMParser().parseFromString(html, "text/html");
      this.pages.set(+answer.headers.get("Handfast-From") / PAGE, [...made.querySelectorAll("tr[data-key]")]);
      table.setAttribute("aria-rowcount", this.total + 1);
      // Without rows the style hides the table, and what is said beside it is there instead.
      table.dataset.total = this.total;
      this.beside(made.getElementById("beside"));
      this.draw();
    } catch { /* the next scroll asks again */ } finally { this.asked.delete(n); }
  }
  beside(made) {
    const old = document.getElementById("beside");
    if (old && made && !old.isEqualNode(made)) old.replaceChildren(...made.childNodes);
  }
  draw() {
    const first = Math.max(0, Math.floor(this.window.scrollTop / this.height) - 10);
    const last = Math.min(this.total, first + Math.ceil(this.window.clientHeight / this.height) + 20);
    const rows = [];
    let start = -1;
    for (let i = first; i < last; i++) {
      const page = this.pages.get(Math.floor(i / PAGE));
      const row = page && page[i % PAGE];
      if (!page) { this.page(Math.floor(i / PAGE)); if (rows.length) break; continue; }
      if (!row) break;
      if (start < 0) start = i;
      row.setAttribute("aria-rowindex", i + 2);
      row.classList.toggle("here", i === this.here);
      rows.push(row);
    }
    if (start < 0 && this.total) return;
    start = Math.max(0, start);
    this.above.cells[0].style.height = start * this.height + "px";
    this.above.hidden = !start;
    const left = Math.max(0, this.total - start - rows.length);
    this.below.cells[0].style.height = left * this.height + "px";
    this.below.hidden = !left;
    const kept = document.activeElement && document.activeElement.closest("tr[data-key]");
    if (!(kept && rows.includes(kept)) || this.body.rows.length !== rows.length + 2 || this.body.rows[1] !== rows[0])
      this.body.replaceChildren(this.above, ...rows, this.below);
    // Measured once, in the window: every row has one height.
    const height = this.sized || !rows[0] ? 0 : rows[0].getBoundingClientRect().height;
    if (height) { this.sized = true; this.height = height; }
    this.say();
    // Few pages are kept: the browser never holds the list.
    for (const n of this.pages.keys()) if (Math.abs(n * PAGE - first) > 10 * PAGE) this.pages.delete(n);
  }
  // The rows that are seen, not those that are drawn.
  say() {
    if (!this.pager) return;
    const top = this.window.scrollTop / this.height, head = table.tHead ? table.tHead.offsetHeight : 0;
    const first = Math.min(this.total, Math.floor(top) + 1);
    const last = Math.min(this.total, Math.max(first, Math.round(top + (this.window.clientHeight - head) / this.height)));
    const number = (n) => n.toLocaleString("en");
    let words = this.pager.querySelector("span");
    if (this.pager.children.length > 1) this.pager.replaceChildren(words);
    words.textContent = this.total ? `${number(first)}–${number(last)} of ${number(this.total)}` : "none";
  }
  renew() { this.age++; this.asked.clear(); const held = this.pages; this.pages = new Map(held); for (const n of held.keys()) this.stale(n); }
  stale(n) { const seen = Math.floor(this.window.scrollTop / this.height / PAGE); if (Math.abs(n - seen) <= 1) this.page(n); else this.pages.delete(n); }
  filter(text) {
    if (text) this.query.set("filter", text); else this.query.delete("filter");
    this.query.delete("older");
    this.age++; this.asked.clear(); this.pages.clear(); this.here = -1; this.window.scrollTop = 0;
    const address = new URL(location.href);
    address.search = this.query; history.replaceState(null, "", address);
    this.page(0);
  }
  key(event) {
    const many = Math.max(1, Math.floor(this.window.clientHeight / this.height) - 1);
    const to = { ArrowDown: this.here + 1, ArrowUp: this.here - 1, PageDown: this.here + many, PageUp: this.here - many, Home: 0, End: this.total - 1 }[event.key];
    if (event.key === "Enter" && event.target === this.window) {
      const page = this.pages.get(Math.floor(this.here / PAGE));
      const link = page && page[this.here % PAGE] && page[this.here % PAGE].querySelector("a[href]");
      if (link) link.click();
      return;
    }
    if (to === undefined || !this.total || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    event.preventDefault();
    this.here = Math.max(0, Math.min(this.total - 1, to));
    const top = this.here * this.height, head = table.tHead ? table.tHead.offsetHeight : 0;
    if (top < this.window.scrollTop) this.window.scrollTop = top;
    else if (top + this.height + head > this.window.scrollTop + this.window.clientHeight) this.window.scrollTop = top + this.height + head - this.window.clientHeight;
    this.draw();
  }
})();
