// SPDX-License-Identifier: Apache-2.0
// Live updates: takes the parts of this page that changed, as HTML, and puts each in the place of the element with its id.
// Without it a page is whole, and as old as it says.
const place = document.getElementById("live");
const body = document.body;
const query = new URLSearchParams(body.dataset.query);
query.set("page", body.dataset.page);
let stream = null, heard = Date.now(), lost = null, waiting = 0;

const clock = (at) => new Date(at).toISOString().slice(11, 19) + " UTC";

function say(text, name) {
  place.className = "live " + name;
  if (place.textContent !== text) place.textContent = text;
}

// A stream that lives says nothing of the API server behind it: that is in the banner.
function alive() {
  heard = Date.now();
  lost = null;
  const stale = document.getElementById("banner")?.dataset.stale;
  if (stale) say(`not live since ${clock(stale)}: see above`, "lost");
  else say("live", "on");
}

function notLive(why) {
  lost = lost || heard;
  say(`not live since ${clock(lost)}${why ? `: ${why}` : ""}`, "lost");
}

// What has the focus keeps it: by its id, else as the same one of its kind.
function replace(id, html) {
  const old = document.getElementById(id);
  if (!old) return;
  const made = new DOMParser().parseFromString(html, "text/html").body.firstElementChild;
  if (!made || old.outerHTML === made.outerHTML) return;
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const kinds = "a[href],button,input,select,textarea,summary,[tabindex]";
  const at = focused ? [...old.querySelectorAll(kinds)].indexOf(focused) : -1;
  // Whoever is typing is left alone; the next change brings it.
  if (focused && /^(INPUT|SELECT|TEXTAREA)$/.test(focused.tagName)) return;
  const open = [...old.querySelectorAll("details")].map((each) => each.open);
  old.replaceWith(made);
  [...made.querySelectorAll("details")].forEach((each, i) => { each.open = each.open || !!open[i]; });
  if (focused) ((focused.id && document.getElementById(focused.id)) || made.querySelectorAll(kinds)[at] || made).focus({ preventScroll: true });
  document.dispatchEvent(new CustomEvent("replaced", { detail: made }));
}

function begin() {
  if (stream || document.hidden) return;
  stream = new EventSource("/live?" + query);
  stream.onopen = alive;
  stream.addEventListener("tick", alive);
  stream.addEventListener("upto", alive);
  stream.addEventListener("rows", () => { alive(); document.dispatchEvent(new CustomEvent("rows")); });
  stream.addEventListener("fragment", (event) => {
    const cut = event.data.indexOf("\n");
    replace(event.data.slice(0, cut), event.data.slice(cut + 1));
    alive();
  });
  stream.addEventListener("ended", () => { end(); notLive("your session has ended"); });
  stream.onerror = () => {
    notLive();
    // The browser tries again by itself, unless it was answered with something else than a stream.
    if (stream && stream.readyState === EventSource.CLOSED) { end(); clearTimeout(waiting); waiting = setTimeout(begin, 5000); ask(); }
  };
}

// With what the stream was answered, an EventSource does not tell.
function ask() {
  const control = new AbortController();
  fetch("/live?" + query, { signal: control.signal }).then((answer) => {
    control.abort();
    if (answer.status === 401) notLive("this browser is not signed in any more; reload the page to see how to get in");
  }, () => {});
}

function end() {
  if (stream) stream.close();
  stream = null;
}

// A browser has six connections to one server: a page that nobody sees gives its own back.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) { end(); say(`not live while hidden, as of ${clock(heard)}`, ""); } else begin();
});
setInterval(() => { if (stream && Date.now() - heard > 40000) { notLive(); end(); begin(); } }, 5000);

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  const filter = document.querySelector("input[type=search]");
  if (event.key === "/" && filter) { event.preventDefault(); filter.focus(); filter.select(); }
  if (event.key === "?") { event.preventDefault(); document.getElementById("keys").showModal(); }
});
begin();
