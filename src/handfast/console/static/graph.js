// SPDX-License-Identifier: Apache-2.0
// Moving about in the picture of the mesh: drag, wheel with Ctrl, keys; and whose lines are whose. Without it the picture is whole, and scrolls.
let view = null; // What is seen: x, y, width. It outlives a picture that is drawn anew.

const picture = () => document.querySelector(".graph svg.picture");
const size = (svg) => [+svg.dataset.width, +svg.dataset.height];

function show(svg) {
  const [width, height] = size(svg);
  if (!view) { svg.setAttribute("viewBox", `0 0 ${width} ${height}`); return; }
  view.w = Math.min(Math.max(view.w, 240), width * 1.5);
  const h = view.w * height / width;
  view.x = Math.min(Math.max(view.x, -view.w / 2), width - view.w / 2);
  view.y = Math.min(Math.max(view.y, -h / 2), height - h / 2);
  svg.setAttribute("viewBox", `${view.x} ${view.y} ${view.w} ${h}`);
}

function now(svg) {
  return view || (view = { x: 0, y: 0, w: size(svg)[0] });
}

// Larger or smaller, about a point of the picture between 0 and 1.
function zoom(svg, by, px = .5, py = .5) {
  const v = now(svg), [width, height] = size(svg), w = Math.min(Math.max(v.w / by, 240), width * 1.5), share = height / width;
  v.x += (v.w - w) * px; v.y += (v.w - w) * share * py; v.w = w;
  show(svg);
}

function move(svg, x, y) {
  const v = now(svg);
  v.x += x * v.w; v.y += y * v.w * size(svg)[1] / size(svg)[0];
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
  const rect = box.querySelector("rect"), h = view.w * size(svg)[1] / size(svg)[0];
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
  if (act) { event.preventDefault(); act(svg); }
});
document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-graph]"), svg = picture();
  if (button && svg) KEYS[button.dataset.graph](svg);
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
  if (svg && event.button === 0 && event.pointerType !== "touch") drag = { x: event.clientX, y: event.clientY, moved: false };
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
