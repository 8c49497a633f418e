// The triangle: where each query stands between waiting (B) and remembering (M); the selected one can be dragged.

import { el, replace, say, svg } from "./dom.js";
import { count, length, whole } from "./format.js";

const SIZE = 420, PAD = 78, LONGEST = 864e5; // a day, in milliseconds
const STALE = 2000; // so long after an order a frame may still be older than it
const STEPS = [0, 1, 10, 100, 500, 1e3, 2e3, 5e3, 1e4, 3e4, 6e4, 3e5, 6e5, 36e5, LONGEST, Infinity];

// A length in milliseconds as a place from 0 to 1, and back to one of the steps.
export function placed(ms) {
  if (ms === Infinity) return 1;
  return ms <= 0 ? 0 : Math.min(0.92, 0.06 + (0.86 * Math.log10(1 + ms)) / Math.log10(1 + LONGEST));
}

export function stepped(place) {
  return STEPS.reduce((best, each) => (Math.abs(placed(each) - place) < Math.abs(placed(best) - place) ? each : best));
}

function worded(level) { return `waits ${length(level.block)}, remembers ${length(level.remember)}`; }

export class TriangleView {
  constructor(page) {
    this.page = page;
    this.drawing = svg("svg", { class: "triangle", viewBox: `0 0 ${SIZE + 2 * PAD} ${SIZE + 2 * PAD}`, role: "group",
      "aria-label": "Levels of consistency" });
    this.told = el("div", { class: "level" });
    this.emit = el("select", { class: "steer", "data-order": "level", id: "emit", onchange: () => this.move({ emit: this.emit.value }) },
      [["current", "current: at once, corrected later"], ["ended", "ended: rows whose end is known"],
        ["final", "final: only what cannot change"]].map(([name, words]) => el("option", { value: name }, words)));
    this.node = el("div", { class: "split" },
      el("div", { class: "pane" }, el("p", { class: "legend" },
        "Waiting longer means fewer corrections; remembering longer means fewer lost events. Drag the point of the selected query, or use the arrow keys."),
      this.drawing),
      el("aside", { class: "side" }, this.told));
    this.make();
  }

  x(place) { return PAD + place * SIZE; }
  y(place) { return PAD + (1 - place) * SIZE; }

  make() {
    const { x, y } = { x: (p) => this.x(p), y: (p) => this.y(p) };
    const corner = (b, m, name, words, dx, dy, anchor) => svg("g", { class: "corner" },
      svg("text", { x: x(b) + dx, y: y(m) + dy, "text-anchor": anchor, class: "corner-name" }, name),
      svg("text", { x: x(b) + dx, y: y(m) + dy + 15, "text-anchor": anchor, class: "corner-words" }, words));
    const ticks = [[1e3, "1 s"], [6e4, "1 min"], [36e5, "1 h"], [Infinity, "∞"]].flatMap(([ms, words]) => [
      svg("line", { class: "grid", x1: x(placed(ms)), x2: x(placed(ms)), y1: y(placed(ms)), y2: y(1) }),
      svg("line", { class: "grid", x1: x(0), x2: x(placed(ms)), y1: y(placed(ms)), y2: y(placed(ms)) }),
      svg("text", { class: "grid-text", x: x(0) - 18, y: y(placed(ms)) + 4, "text-anchor": "end" }, words)]);
    this.points = svg("g", {});
    replace(this.drawing,
      svg("path", { class: "legal", d: `M${x(0)} ${y(0)}L${x(0)} ${y(1)}L${x(1)} ${y(1)}Z` }), ticks,
      svg("text", { class: "axis", x: x(0.5), y: y(1) - 58, "text-anchor": "middle" }, "B: how long it waits before it answers →"),
      svg("text", { class: "axis", transform: `translate(${x(0) - 62} ${y(0.45)}) rotate(-90)`, "text-anchor": "middle" }, "M: how long it remembers →"),
      corner(0, 0, "weak", "at once, forgets", 12, 16, "start"),
      corner(0, 1, "middle", "at once, corrects", 4, -36, "start"),
      corner(1, 1, "strong", "waits, is right", 0, -36, "end"), this.points);
  }

  ms(ticks) { return ticks === "inf" ? Infinity : (Number(ticks) * this.page.state.axis.tick) / 1e6; }
  ticks(ms) { return ms === Infinity ? "inf" : Math.round((ms * 1e6) / this.page.state.axis.tick); }

  selected() { this.framed(this.page.state); }

  // The level that a query was last asked to have, until a frame shows it; else the one that it has.
  levelOf(query) {
    if (this.asked?.name !== query.name) return query.level;
    const { told, since, level } = this.asked;
    const isShown = told && ["block", "remember", "emit"].every((each) => told[each] === query.level[each]);
    if (!isShown && !(told && performance.now() - since > STALE)) return level;
    this.asked = null;
    return query.level;
  }

  framed(state) {
    if (!state || this.dragging) return;
    const running = state.queries.filter((each) => each.state === "running" && each.level);
    const spots = new Map();
    const hadFocus = this.points.contains(document.activeElement);
    replace(this.points, [...running].sort((a, b) => (a.name === this.page.selected) - (b.name === this.page.selected)).map((query) => {
      const level = this.levelOf(query), b = placed(this.ms(level.block)), m = placed(this.ms(level.remember));
      const spot = `${b} ${m}`, n = spots.get(spot) ?? 0;
      spots.set(spot, n + 1);
      return this.point(query, level, b, m, query.name === this.page.selected, n);
    }));
    if (hadFocus) this.points.lastChild?.focus();
    this.tell();
  }

  point(query, level, b, m, isSelected, n) {
    const free = isSelected && this.page.takes("level"), words = worded(level);
    const group = svg("g", {
      class: `level-point${isSelected ? " selected" : ""}`, transform: `translate(${this.x(b)} ${this.y(m)})`,
      "data-level": query.name, tabindex: free ? 0 : -1, role: free ? "slider" : "img",
      "aria-label": `${query.name}: ${words}`, "aria-valuetext": words,
      onclick: () => { if (!isSelected) this.page.select(query.name); },
    }, svg("circle", { r: isSelected ? 12 : 7 }),
      svg("text", { x: 16, y: 5 + 17 * n, class: "level-name" }, query.name));
    if (free) {
      group.addEventListener("pointerdown", (event) => this.grab(event, group));
      group.addEventListener("keydown", (event) => this.key(event, query));
    }
    return group;
  }

  grab(event, group) {
    event.preventDefault();
    group.setPointerCapture(event.pointerId);
    this.dragging = group;
    const place = (moved) => {
      const box = this.drawing.getBoundingClientRect(), scale = (SIZE + 2 * PAD) / box.width;
      const m = Math.min(Math.max(1 - ((moved.clientY - box.top) * scale - PAD) / SIZE, 0), 1);
      const b = Math.min(Math.max(((moved.clientX - box.left) * scale - PAD) / SIZE, 0), 1);
      return [Math.min(b, m), m];
    };
    group.onpointermove = (moved) => {
      const [b, m] = place(moved);
      group.setAttribute("transform", `translate(${this.x(b)} ${this.y(m)})`);
      const block = stepped(b), remember = Math.max(stepped(m), block);
      say(this.wish, worded({ block: this.ticks(block), remember: this.ticks(remember) }));
    };
    group.onpointerup = (moved) => {
      group.onpointermove = group.onpointerup = null;
      const [b, m] = place(moved), block = stepped(b);
      this.dragging = null;
      this.bounds(block, Math.max(stepped(m), block));
    };
  }

  key(event, query) {
    const by = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (!by) return;
    event.preventDefault();
    const next = (ticks, n) => STEPS[Math.min(Math.max(STEPS.indexOf(stepped(placed(this.ms(ticks)))) + n, 0), STEPS.length - 1)];
    const level = this.levelOf(query);
    let block = next(level.block, by[0]), remember = next(level.remember, by[1]);
    if (block > remember) by[0] ? (remember = block) : (block = remember);
    this.bounds(block, remember);
  }

  // Who waits for ever says only what is final; who no longer does says it at once again.
  bounds(block, remember) {
    const level = this.levelOf(this.page.query), order = { block: this.ticks(block) };
    if (this.ms(level.remember) !== remember) order.remember = this.ticks(remember);
    if (block === Infinity) order.emit = "final";
    else if (level.emit === "final" && level.block === "inf") order.emit = "current";
    return this.move(order);
  }

  // Orders go one after the other, and each begins where the last one will have ended.
  move(order) {
    const { query } = this.page;
    if (!query?.level) return;
    const asked = { name: query.name, level: { ...this.levelOf(query), ...order }, told: null };
    this.asked = asked;
    this.framed(this.page.state);
    this.last = (this.last ?? Promise.resolve()).then(async () => {
      const answer = await this.page.ofQuery(asked.name, "consistency", order,
        (told) => `${asked.name} now waits ${length(told.level.block)} and remembers ${length(told.level.remember)}`);
      Object.assign(asked, { told: answer?.level ?? {}, since: answer ? performance.now() : -Infinity });
      this.framed(this.page.state);
    });
  }

  tell() {
    const query = this.page.query;
    if (query && !query.level) { replace(this.told, el("p", { class: "hint" }, "The level of a job is in its text.")); return; }
    if (!query) { replace(this.told, el("p", { class: "hint" }, "No query is selected.")); return; }
    const shape = `${query.name} ${query.state}`;
    if (shape !== this.shape) {
      this.shape = shape;
      this.wish = el("b", { id: "level" });
      this.facts = el("dl", { class: "facts" });
      replace(this.told, el("h2", {}, query.name), el("p", {}, this.wish), el("label", { for: "emit" }, "It says "), this.emit, this.facts,
        el("p", { class: "hint" }, "What it has said and promised stands. To remember longer does not bring back what was forgotten."));
    }
    const level = this.levelOf(query);
    say(this.wish, worded(level));
    if (document.activeElement !== this.emit) this.emit.value = level.emit;
    this.emit.disabled = !this.page.takes("level") || query.state !== "running";
    const lost = this.page.state.nodes.filter((node) => node.kind === "source" && node.queries.includes(query.name))
      .reduce((all, node) => all + node.dropped, 0);
    const facts = [["answers a second", count(query.said_per_second)], ["corrections a second", count(query.corrected_per_second)],
      ["corrections so far", whole(query.corrections)], ["events given up", whole(lost)], ["final is behind by", length(query.lag)]];
    replace(this.facts, facts.map(([name, words]) => [el("dt", {}, name), el("dd", {}, words)]));
  }
}
