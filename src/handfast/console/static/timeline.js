// SPDX-License-Identifier: Apache-2.0
// Zooms and moves the time axis of lifetimes: by keys on the axis, by wheel or two fingers on the bars. All bars follow one transform, which stands on their table,
// so that rows that come later are in the right place at once. Without it there are links to a longer and a shorter axis.
const WIDTH = 1000, MINUTE = 60, HOUR = 3600, DAY = 86400;
const STEPS = [MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 90 * DAY, 180 * DAY, 366 * DAY, 732 * DAY];
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

// What is seen of the axis: from `left`, in units of the drawing, at so many times its size. It outlives the elements that live parts replace.
let left = 0, zoom = 1;

function words(at, step) {
  const day = `${at.getUTCDate()} ${MONTHS[at.getUTCMonth()]}`;
  if (step < DAY) return at.getUTCHours() || at.getUTCMinutes() ? at.toISOString().slice(11, 16) : day;
  return step < 90 * DAY ? day : `${MONTHS[at.getUTCMonth()]} ${at.getUTCFullYear()}`;
}

function draw(axis) {
  const plane = axis.closest(".lives");
  plane.style.setProperty("--zoom", zoom);
  plane.style.setProperty("--left", `${-left * zoom}px`);
  const svg = axis.querySelector("svg");
  const span = +axis.dataset.span, start = Date.parse(axis.dataset.now) / 1000 - span;
  const at = (x) => start + (2 * span * x) / WIDTH;
  const from = at(left), to = at(left + WIDTH / zoom);
  const room = Math.max(2, Math.floor(axis.clientWidth / 56));
  const step = STEPS.find((each) => (to - from) / each <= room) || STEPS[STEPS.length - 1];
  const midnight = Math.floor(from / DAY) * DAY;
  const texts = [];
  for (let moment = midnight + Math.ceil((from - midnight) / step) * step; moment <= to; moment += step) {
    const part = (100 * (moment - from)) / (to - from);
    if (Math.min(part, 100 - part) * axis.clientWidth < 2200) continue;
    const text = document.createElementNS("http://www.w3.org/2000/svg", "text");
    text.setAttribute("x", `${part.toFixed(1)}%`);
    text.setAttribute("y", "13");
    text.textContent = words(new Date(moment * 1000), step);
    texts.push(text);
  }
  svg.replaceChildren(...texts);
}

function all() {
  for (const axis of document.querySelectorAll(".axis")) draw(axis);
}

let waits = false;
function set(newZoom, newLeft) {
  zoom = Math.min(500, Math.max(0.2, newZoom));
  left = Math.min(WIDTH * 2, Math.max(-WIDTH * 2, newLeft));
  if (Math.abs(zoom - 1) < 0.01) zoom = 1;
  if (!waits) requestAnimationFrame(() => { waits = false; all(); });
  waits = true;
}

// About a place, as a part of what is seen: it stays where it is.
function about(part, factor) {
  const place = left + (part * WIDTH) / zoom;
  const next = Math.min(500, Math.max(0.2, zoom * factor));
  set(next, place - (part * WIDTH) / next);
}

const KEYS = {
  "+": () => about(0.5, 1.5), "=": () => about(0.5, 1.5), "-": () => about(0.5, 1 / 1.5),
  ArrowLeft: () => set(zoom, left - WIDTH / zoom / 10), ArrowRight: () => set(zoom, left + WIDTH / zoom / 10),
  0: () => set(1, 0), Home: () => set(1, 0),
};
document.addEventListener("keydown", (event) => {
  const act = KEYS[event.key];
  if (!act || event.ctrlKey || event.metaKey || event.altKey || !event.target.closest(".axis")) return;
  event.preventDefault();
  event.stopPropagation();
  act();
}, true);

const over = (event) => event.target.closest && event.target.closest(".axis, .life");
const part = (event, element) => {
  const box = element.getBoundingClientRect();
  return (event.clientX - box.left) / box.width;
};
// A wheel on a bar scrolls the rows, as everywhere; with Ctrl, which is also what two fingers on a pad are, or on the axis itself, it zooms.
document.addEventListener("wheel", (event) => {
  const element = over(event);
  if (!element || !(event.ctrlKey || element.classList.contains("axis"))) return;
  event.preventDefault();
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) set(zoom, left + event.deltaX / zoom);
  else about(part(event, element), Math.exp(-event.deltaY / 300));
}, { passive: false });

// Two fingers on a screen.
const fingers = new Map();
const apart = () => { const [one, other] = [...fingers.values()]; return Math.abs(one.clientX - other.clientX) || 1; };
let before = 0;
document.addEventListener("pointerdown", (event) => {
  if (event.pointerType !== "touch" || !over(event)) return;
  fingers.set(event.pointerId, event);
  if (fingers.size === 2) before = apart();
});
document.addEventListener("pointermove", (event) => {
  if (!fingers.has(event.pointerId)) return;
  const last = fingers.get(event.pointerId);
  fingers.set(event.pointerId, event);
  const element = over(event);
  if (fingers.size === 2) {
    const now = apart();
    if (element) about(part(event, element), now / before);
    before = now;
  } else if (element && element.classList.contains("axis")) set(zoom, left - ((event.clientX - last.clientX) / element.clientWidth) * (WIDTH / zoom));
});
for (const name of ["pointerup", "pointercancel"]) document.addEventListener(name, (event) => fingers.delete(event.pointerId));

// A part that was sent anew has the axis as the server draws it, which does not know how wide it is.
document.addEventListener("replaced", all);
addEventListener("resize", all);
all();
