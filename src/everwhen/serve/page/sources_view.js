// The sources: how far each has come, whether it is idle, what came late, and whom it holds back.

import { el, replace, say } from "./dom.js";
import { count, instant, length, whole } from "./format.js";
import { spark } from "./charts.js";
import { heldBack } from "./layout.js";

const IDLE = 5;

export class SourcesView {
  constructor(page) {
    this.page = page;
    this.node = el("div", { class: "pane sources" });
    this.cards = new Map();
  }

  framed(state) {
    const names = state.sources.map((each) => each.name).join("\n");
    if (names !== this.names) {
      this.names = names;
      this.cards = new Map(state.sources.map((each) => [each.name, this.card(each.name)]));
      replace(this.node, state.sources.length ? [...this.cards.values()].map((card) => card.node)
        : el("p", { class: "hint" }, "No query reads a source."));
    }
    const held = {};
    for (const query of state.queries.filter((each) => each.state === "running" && each.lag !== 0)) {
      const { source } = heldBack(state.nodes, `query ${query.name}`);
      if (source) (held[source.name] ??= []).push(query.name);
    }
    const most = Math.max(1, ...state.sources.map((each) => Number(each.lag ?? 0)));
    for (const each of state.sources) this.fill(this.cards.get(each.name), each, held[each.name] ?? [], most);
  }

  card(name) {
    const card = { facts: el("dl", { class: "facts" }), chart: el("div", {}), how: el("p", { class: "how" }),
      bar: el("i", {}), name, load: el("a", { class: "load", download: "", hidden: true,
        href: `/api/sources/${encodeURIComponent(name)}/late` }, "Download the late rows") };
    card.node = el("article", { class: "source-card", "data-source": name }, el("h2", {}, name), card.how,
      el("div", { class: "lagbar", "aria-hidden": "true" }, card.bar), card.facts, card.load, card.chart);
    return card;
  }

  fill(card, each, holds, most) {
    const isIdle = !each.ended && each.silent !== null && each.silent > IDLE;
    card.node.classList.toggle("waits", holds.length > 0);
    card.node.classList.toggle("ended", each.ended);
    say(card.how, each.ended ? "■ has ended" : holds.length ? `◷ holds back ${holds.join(", ")}`
      : isIdle ? `silent for ${Math.round(each.silent)} s` : "holds nobody back");
    card.bar.style.setProperty("--share", each.lag === null ? 1 : Number(each.lag) / most);
    const late = each.late;
    const facts = [
      ["rows a second", count(each.per_second)],
      ["rows so far", whole(each.taken)],
      ["has promised", each.progress === null ? "nothing yet" : `final before ${instant(each.progress)}`],
      ["largest start", instant(each.largest_start)],
      ["behind by", each.progress === null ? "all of it" : length(each.lag)],
      ["late rows", late === null ? "an error, where one comes" : `${whole(late.dropped)} dropped, ${whole(late.moved)} moved, of ${whole(late.rows)}`],
      ["read by", each.queries.join(", ") || "nobody"],
    ];
    card.load.hidden = !late?.dropped;
    replace(card.facts, facts.map(([name, words]) => [el("dt", {}, name), el("dd", {}, words)]));
    replace(card.chart, spark(this.page.points.map((point) => point.sources[card.name]?.[0] ?? null), 300, 40));
  }
}
