// SPDX-License-Identifier: Apache-2.0
// Moving about in the picture of the mesh: drag, wheel with Ctrl, keys; and whose lines are whose. Without it the picture is whole, and scrolls.
let view = null; // What is seen: x, y, width; null: all of it. It outlives a picture that is drawn anew.
let chosen = false; // Whether somebody has moved it.

const picture = () => document.querySelector(".graph svg.picture");
const size = (svg) => [+svg.dataset.width, +svg.dataset.height];
// How high the place of the picture is, as a part of its width.
const share = (svg) => (svg.clientHeight / svg.clientWidth) || size(svg)[1] / size(svg)[0];

function show(svg) {
  const [width, height] = size(svg);
  if (!view) { svg.setAttribute("viewBox", `0 0 ${width} ${height}`); return; }
  view.w = Math.min(Math.max(view.w, 240), width * 1.5);
  const h = view.w * share(svg);
  view.x = Math.min(Math.max(view.x, -view.w / 2), width - view.w / 2);
  view.y = Math.min(Math.max(view.y, -h / 2), height - h / 2);
  svg.setAttribute("viewBox", `${view.x} ${view.y} ${view.w} ${h}`);
}

// All of it, as it is seen; `w` less than all begins at the left.
function now(svg, w) {
  const [width, height] = size(svg), wide = w || Math.max(width, height / share(svg));
  return view || (view = { x: w ? 0 : (width - wide) / 2, y: (height - wide * share(svg)) / 2, w: wide });
}

// Larger or smaller, about a point of the picture between 0 and 1.
function zoom(svg, by, px = .5, py = .5) {
  const v = now(svg), w = Math.min(Math.max(v.w / by, 240), size(svg)[0] * 1.5);
  v.x += (v.w - w) * px; v.y += (v.w - w) * share(svg) * py; v.w = w;
  show(svg);
}

function move(svg, x, y) {
  const v = now(svg);
  v.x += x * v.w; v.y += y * v.w * share(svg);
  show(svg);
}

// A box that is looked at has its lines stand out, and those whom it talks to.
function point(svg, box) {
  const own = box && box.dataset.box, near = new Set([own]);
  svg.classList.toggle("pointed", !!own);
  for (const line of svg.querySelectorAll("path.line")) {
    const is = !!own && (line.dataset.from === own || line.dataset.to === own);
    line.classList.toggle("on", is);
    if (is) near.add(line.dataset.from).add(line.dataset.to);
  }
  for (const each of svg.querySelectorAll("a.box")) each.classList.toggle("on", !!own && near.has(each.dataset.box));
}

// A box that gets the focus by the keyboard is brought into sight.
function seek(svg, box) {
  if (!view) return;
  const rect = box.querySelector("rect"), h = view.w * share(svg);
  const x = +rect.getAttribute("x"), y = +rect.getAttribute("y");
  if (x < view.x || x + 168 > view.x + view.w) view.x = x + 84 - view.w / 2;
  if (y < view.y || y + 34 > view.y + h) view.y = y + 17 - h / 2;
  show(svg);
}

function begin() {
  const svg = picture();
  if (!svg) return;
  for (const each of document.querySelectorAll(".graph-keys")) each.hidden = false;
  svg.parentElement.classList.add("moves");
  // In a narrow window all of it would be too small to read.
  if (!chosen && svg.clientWidth < size(svg)[0] * .6) now(svg, svg.clientWidth * 1.2);
  show(svg);
}

const KEYS = {
  "+": (svg) => zoom(svg, 1.25), "=": (svg) => zoom(svg, 1.25), "-": (svg) => zoom(svg, .8),
  "0": (svg) => { view = null; show(svg); },
  ArrowLeft: (svg) => move(svg, -.15, 0), ArrowRight: (svg) => move(svg, .15, 0), ArrowUp: (svg) => move(svg, 0, -.15), ArrowDown: (svg) => move(svg, 0, .15),
};
document.addEventListener("keydown", (event) => {
  const svg = picture();
  if (!svg || event.ctrlKey || event.metaKey || event.altKey || !event.target.closest || !event.target.closest(".graph")) return;
  const act = KEYS[event.key];
  if (act) { event.preventDefault(); chosen = true; act(svg); }
});
document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-graph]"), svg = picture();
  if (button && svg) { chosen = true; KEYS[button.dataset.graph](svg); }
});
document.addEventListener("wheel", (event) => {
  const svg = event.target.closest && event.target.closest("svg.picture");
  if (!svg || !event.ctrlKey) return;
  event.preventDefault();
  const at = svg.getBoundingClientRect();
  zoom(svg, event.deltaY < 0 ? 1.15 : .87, (event.clientX - at.left) / at.width, (event.clientY - at.top) / at.height);
}, { passive: false });

let drag = null;
document.addEventListener("pointerdown", (event) => {
  const svg = event.target.closest && event.target.closest("svg.picture");
  if (svg && event.button === 0) drag = { x: event.clientX, y: event.clientY, moved: false };
});
document.addEventListener("pointermove", (event) => {
  const svg = picture();
  if (!drag || !svg) return;
  const at = svg.getBoundingClientRect(), x = event.clientX - drag.x, y = event.clientY - drag.y;
  if (!drag.moved && Math.abs(x) + Math.abs(y) < 5) return;
  drag = { x: event.clientX, y: event.clientY, moved: true };
  move(svg, -x / at.width, -y / at.height);
});
document.addEventListener("pointerup", () => { if (drag && !drag.moved) drag = null; else setTimeout(() => { drag = null; }); });
// To drag a box is not to open it.
document.addEventListener("click", (event) => { if (drag && drag.moved && event.target.closest("a.box")) event.preventDefault(); }, true);
document.addEventListener("dragstart", (event) => { if (event.target.closest && event.target.closest("svg.picture")) event.preventDefault(); });

const boxOf = (event) => event.target.closest ? event.target.closest("a.box") : null;
document.addEventListener("pointerover", (event) => { const svg = picture(); if (svg) point(svg, boxOf(event) || (document.activeElement && document.activeElement.closest("a.box"))); });
document.addEventListener("focusin", (event) => { const svg = picture(), box = boxOf(event); if (svg) { point(svg, box); if (box) seek(svg, box); } });
document.addEventListener("replaced", (event) => { if (event.detail.querySelector("svg.picture")) begin(); });
begin();
