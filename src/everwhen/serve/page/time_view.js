// Time: lifetimes as bars over application time, the promise as a moving line, and figures of the last minutes.

import { get, ofQuery } from "./api.js";
import { el, replace, say, svg } from "./dom.js";
import { count, instant, length, value } from "./format.js";
import { chart } from "./charts.js";

const WIDTH = 1000, LANE = 17, HEAD = 30, LANES = 26;
const EVERY = 500;

export class TimeView {
  constructor(page) {
    this.page = page;
    this.zoom = 0;
    this.charts = el("div", { class: "charts" });
    this.drawing = svg("svg", { class: "timeline", role: "img", viewBox: `0 0 ${WIDTH} ${HEAD + LANE * LANES}` });
    this.status = el("p", { class: "status" });
    const button = (words, title, by) => el("button", { title, "aria-label": title, onclick: () => { this.zoom += by; this.load(); } }, words);
    this.node = el("div", { class: "pane" }, this.charts,
      el("div", { class: "answer-head" }, this.title = el("h2", {}), this.status,
        el("span", { class: "buttons" }, button("−", "a longer span", 1), button("+", "a shorter span", -1))),
      this.box = el("div", { class: "scroll timeline-box", tabindex: 0, "aria-label": "Lifetimes, can be scrolled" }, this.drawing),
      el("p", { class: "legend" }, "Each bar is a row of the answer, from when to when it holds. Solid: final. Hatched: it may still change. An end without an edge is not known yet."));
  }

  opened() {
    this.timer = setInterval(() => this.load(), EVERY);
    this.load();
  }

  closed() {
    clearInterval(this.timer);
    this.shown = false;
  }

  selected() { this.natural = null; this.zoom = 0; this.load(); }

  framed(state) {
    const name = this.page.selected, points = this.page.points;
    if (this.drawn?.[0] === points.at(-1) && this.drawn[1] === name) return state;
    this.drawn = [points.at(-1), name];
    const of = (i) => points.map((point) => point.queries[name]?.[i] ?? null);
    replace(this.charts,
      chart("events/s", points.map((point) => point.elements), count),
      chart("answers/s", of(0), count, of(1), "corrections/s below"),
      chart("corrections/s", of(1), count),
      chart("behind", of(2), length),
      chart("rows kept", points.map((point) => point.state), count));
    say(this.title, name ?? "No query");
    return state;
  }

  async load() {
    const query = this.page.query;
    if (!query || query.now === null || query.now === undefined || this.loading) return;
    const now = Number(query.now), first = Number(query.first ?? now);
    const whole = Math.max(now - first, 10);
    this.natural = Math.min(this.natural ?? whole, whole);
    const final = query.final_before === "inf" || query.final_before === null ? now : Number(query.final_before);
    const open = Math.min(2 * (now - final), whole); // what is final is seen, too
    const span = Math.max(4, Math.round(Math.max(this.natural, open) * 2 ** this.zoom));
    this.loading = true;
    try {
      const told = await get(ofQuery(query.name, "timeline"), { from: String(now - span), to: String(now + 1), limit: 400 });
      if (told.query === this.page.selected) {
        this.draw(told, now - span, now + span * 0.06);
        this.fit(told);
      }
    } catch (problem) {
      say(this.status, problem.message);
    } finally { this.loading = false; }
  }

  // The next span is one in which some dozens of rows begin.
  fit(told) {
    if (told.total > 150) this.natural /= Math.min(told.total / 100, 8);
    else if (told.total < 30) this.natural *= 1.6;
  }

  draw(told, lo, hi) {
    const x = (t) => ((Math.min(Math.max(Number(t), lo), hi) - lo) / (hi - lo)) * WIDTH;
    const final = told.final_before === "inf" ? hi : told.final_before === null ? lo : Number(told.final_before);
    const lanes = [], bars = [];
    const events = [...told.events].reverse();
    let hidden = 0;
    for (const each of events) {
      const from = Number(each.vs), to = each.ve === "inf" ? Infinity : Number(each.ve);
      let lane = lanes.findIndex((end) => end <= from);
      if (lane < 0) { lane = lanes.length; lanes.push(0); }
      lanes[lane] = to;
      if (lane >= LANES) { hidden += 1; continue; }
      bars.push(this.bar(each, lane, x, lo, hi, final, to));
    }
    const bottom = HEAD + LANE * Math.min(Math.max(lanes.length, 6), LANES);
    this.drawing.setAttribute("viewBox", `0 0 ${WIDTH} ${bottom + 4}`);
    const line = (t, name, words, anchor) => [
      svg("line", { class: name, x1: x(t), x2: x(t), y1: HEAD - 8, y2: bottom }),
      svg("text", { class: `${name}-text`, x: x(t) + (anchor === "end" ? -4 : 4), y: 12, "text-anchor": anchor }, words)];
    replace(this.drawing, hatch(), axisOf(lo, hi, x, bottom), bars,
      line(Math.min(Math.max(final, lo), hi), "cti", `final before ${instant(told.final_before)}`, x(final) > WIDTH / 2 ? "end" : "start"),
      line(told.now ?? hi, "present", "", "start"));
    if (!this.shown) { // on a phone the newest is on the right
      this.shown = true;
      this.box.scrollLeft = this.box.scrollWidth;
    }
    say(this.status, `${instant(Math.round(lo))} to ${instant(told.now)}${hidden ? ` · ${hidden} bars more than fit` : ""}${told.sample > 1 ? ` · a sample, 1 in ${told.sample}` : ""}`);
    this.drawing.setAttribute("aria-label", `${bars.length} lifetimes; final before ${instant(told.final_before)}`);
  }

  bar(each, lane, x, lo, hi, final, to) {
    const y = HEAD + lane * LANE, left = x(each.vs), right = to === Infinity ? WIDTH : x(to);
    const cut = Math.min(Math.max(x(final), left), right);
    const words = each.row.map(value).join(" · ");
    const room = Math.floor((right - left) / 5.6);
    return svg("g", { class: "life" }, svg("title", {}, `${words}\n[${instant(each.vs)}, ${instant(each.ve)})`),
      cut > left ? svg("rect", { class: "sure", x: left, y, width: Math.max(cut - left, 1), height: LANE - 4 }) : null,
      right > cut ? svg("rect", { class: `unsure${to === Infinity ? " endless" : ""}`, x: cut, y, width: Math.max(right - cut, 1), height: LANE - 4 }) : null,
      to !== Infinity && to < hi ? svg("line", { class: "end", x1: right, x2: right, y1: y, y2: y + LANE - 4 }) : null,
      room > 3 ? svg("text", { x: left + 4, y: y + 10 }, words.length > room ? `${words.slice(0, room - 1)}…` : words) : null);
  }
}

function hatch() {
  return svg("defs", {}, svg("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svg("rect", { width: 6, height: 6, class: "hatch-ground" }), svg("line", { x1: 0, x2: 0, y1: 0, y2: 6, class: "hatch-line" })));
}

function axisOf(lo, hi, x, bottom) {
  const rough = (hi - lo) / 6, size = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].map((n) => n * size).find((n) => n >= rough));
  const found = [];
  for (let t = Math.ceil(lo / step) * step; t <= hi; t += step) {
    found.push(svg("line", { class: "grid", x1: x(t), x2: x(t), y1: HEAD - 4, y2: bottom }),
      svg("text", { class: "grid-text", x: x(t) + 3, y: HEAD - 6 }, instant(Math.round(t))));
  }
  return found;
}
