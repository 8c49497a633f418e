// The page: a head with what runs and how fast, the queries, and one view of the selected one.

import { Frames, Problem, get, login, ofQuery, post } from "./api.js";
import { el, replace, say, toast } from "./dom.js";
import { count, instant, length, setAxis } from "./format.js";
import { spark } from "./charts.js";
import { AnswerView } from "./answer_view.js";
import { EditorView } from "./editor_view.js";
import { GraphView } from "./graph_view.js";
import { SourcesView } from "./sources_view.js";
import { TimeView } from "./time_view.js";
import { TriangleView } from "./triangle_view.js";

const VIEWS = [
  ["graph", "Graph", GraphView], ["answer", "Answer", AnswerView], ["time", "Time", TimeView],
  ["sources", "Sources", SourcesView], ["consistency", "Consistency", TriangleView], ["editor", "Editor", EditorView],
];
const KEPT = 300;

class Page {
  constructor() {
    this.state = null;
    this.points = [];
    this.selected = null;
    this.at = "now";
    this.readOnly = false;
    this.views = {};
    this.frames = new Frames({
      session: (told) => this.show(told),
      answer: (told) => { this.answer = told; this.view?.answered?.(told); },
      open: () => { document.body.classList.remove("gone"); this.skipped = 0; },
      gone: () => this.gone(),
    });
  }

  async begin() {
    this.makeHead();
    this.makeTabs();
    try {
      await login();
      const about = await this.first();
      this.readOnly = about.read_only;
      document.body.classList.toggle("read-only", this.readOnly);
      this.points = (await get("/api/series")).points;
      this.show(about);
    } catch (problem) {
      this.refused(problem);
      return;
    }
    const wanted = new URLSearchParams(location.search);
    this.open(VIEWS.some(([name]) => name === wanted.get("view")) ? wanted.get("view") : "graph");
    this.select(wanted.get("query") ?? this.state.queries[0]?.name ?? null);
    addEventListener("hashchange", () => location.reload());
  }

  // The first look; an engine that is busy (perhaps compiling) is asked again.
  async first() {
    for (;;) {
      try {
        return await get("/api/state");
      } catch (problem) {
        if (problem.status !== 503) throw problem;
        this.showState("busy: an epoch takes long, perhaps because loops are being compiled");
        await new Promise((done) => setTimeout(done, 1000));
      }
    }
  }

  refused(problem) {
    const words = problem instanceof Problem ? problem.message : `unforeseen: ${problem}`;
    say(document.getElementById("problem"), words);
    document.body.classList.add("refused");
  }

  gone() {
    document.body.classList.add("gone");
    say(this.pill, "no connection");
  }

  // -- orders ----------------------------------------------------------------------------------------------------

  async order(path, body, done) {
    try {
      const told = await post(path, body);
      if (done) toast(typeof done === "function" ? done(told) : done);
      return told;
    } catch (problem) {
      toast(problem.message, true);
      return null;
    }
  }

  ofQuery(name, what, body, done) { return this.order(ofQuery(name, what), body, done); }

  select(name, at = "now") {
    this.selected = name;
    this.at = at;
    this.answer = null;
    this.frames.look(name === null ? {} : { query: name, at });
    this.showQueries();
    this.view?.selected?.();
    this.remember();
    if (name !== null) this.fetchAnswer();
  }

  // The answer at once; frames bring it again and again.
  async fetchAnswer() {
    const name = this.selected;
    try {
      const told = await get(ofQuery(name, "answer"), { at: this.at });
      if (name !== this.selected || this.answer !== null) return;
      this.answer = told;
      this.view?.answered?.(told);
    } catch { /* the next frame brings it */ }
  }

  // Another instant of the same answer.
  lookAt(at) {
    this.at = at;
    this.frames.look({ query: this.selected, at });
  }

  takes(order) { return !this.readOnly && (this.state?.orders.includes(order) ?? false); }

  get query() { return this.state?.queries.find((each) => each.name === this.selected) ?? null; }

  remember() {
    const told = new URLSearchParams({ view: this.name, ...(this.selected ? { query: this.selected } : {}) });
    history.replaceState(null, "", `?${told}`);
  }

  // -- the head --------------------------------------------------------------------------------------------------

  makeHead() {
    this.pill = el("span", { class: "pill", id: "state" }, "connecting");
    this.play = el("button", { class: "steer", "data-order": "run", id: "play", onclick: () => this.order("/api/run", {
      action: this.isPlaying ? "pause" : "play" }) }, "Play");
    this.step = el("button", { class: "steer", "data-order": "run", id: "step", title: "one epoch more",
      onclick: () => this.order("/api/run", { action: "step" }) }, "Step");
    this.rate = el("select", { class: "steer", "data-order": "run", id: "rate", "aria-label": "Events a second", onchange: () => {
      const rate = this.rate.value === "" ? null : Number(this.rate.value);
      this.order("/api/run", { rate });
    } });
    this.figures = {};
    const figure = (name, words, title) => {
      this.figures[name] = el("b", {}, "–");
      return el("div", { class: "figure", title }, this.figures[name], el("span", {}, words));
    };
    replace(document.getElementById("head"),
      el("h1", {}, el("img", { src: "icon.svg", alt: "", width: 26, height: 26 }), "Everwhen"),
      this.pill,
      el("div", { class: "controls" }, this.play, this.step, this.rate),
      el("div", { class: "figures" },
        figure("rate", "events/s", "elements of all sources that were taken, a second"),
        figure("said", "answers/s", "inserts and adjusts of all queries, a second"),
        figure("corrected", "corrections/s", "changes of what had been answered before, a second"),
        figure("lag", "behind", "how far the last query is final behind what has come"),
        figure("state", "rows kept", "state of all operators")));
  }

  get isPlaying() { return this.state !== null && this.state.state !== "paused"; }

  show(told) {
    this.state = told;
    setAxis(told.axis);
    if (told.point && told.point.time !== this.points.at(-1)?.time) {
      this.points.push(told.point);
      if (this.points.length > KEPT) this.points.shift();
    }
    this.showOrders(told.orders);
    this.showState(told.state);
    this.pill.dataset.state = told.state.split(" ")[0];
    document.title = told.job ? `${told.job.job} · Everwhen` : "Everwhen";
    say(this.play, this.isPlaying ? "Pause" : "Play");
    say(document.getElementById("problem"), told.problem);
    this.showRates(told.rate);
    const running = told.queries.filter((each) => each.state === "running");
    const sum = (name) => running.reduce((all, each) => all + each[name], 0);
    const lags = running.map((each) => each.lag).filter((lag) => lag !== null);
    say(this.figures.rate, count(told.elements_per_second));
    say(this.figures.said, count(sum("said_per_second")));
    say(this.figures.corrected, count(sum("corrected_per_second")));
    say(this.figures.lag, lags.length ? length(Math.max(...lags)) : "–");
    say(this.figures.state, count(told.nodes.reduce((all, each) => all + each.state_rows, 0)));
    const isThere = told.queries.some((each) => each.name === this.selected);
    this.missed = isThere ? 0 : (this.missed ?? 0) + 1; // a frame may be older than the query
    if (this.selected !== null && this.missed > 3) {
      this.missed = 0;
      this.select(told.queries[0]?.name ?? null);
    } else if (this.selected === null && told.queries.length && this.name) this.select(told.queries[0].name);
    this.showQueries();
    this.view?.framed?.(told);
  }

  showState(words) {
    say(this.pill, words.split(":")[0]);
    this.pill.title = words;
  }

  // What is watched takes some orders, and others not.
  showOrders(orders) {
    for (const name of ["run", "query", "alter", "stop", "level"]) {
      document.body.classList.toggle(`no-${name}`, !orders.includes(name));
    }
  }

  showRates(rate) {
    const known = [["", "as fast as it goes"], ["10", "10 events/s"], ["100", "100 events/s"],
      ["1000", "1,000 events/s"], ["10000", "10,000 events/s"], ["100000", "100,000 events/s"]];
    const now = rate === null ? "" : String(rate);
    if (!known.some(([value]) => value === now)) known.push([now, `${count(rate)} events/s`]);
    if (this.rate.options.length !== known.length) {
      replace(this.rate, known.map(([value, words]) => el("option", { value }, words)));
    }
    if (document.activeElement !== this.rate) this.rate.value = now;
  }

  // -- the queries -----------------------------------------------------------------------------------------------

  showQueries() {
    if (this.state === null) return;
    const nav = document.getElementById("queries");
    const names = this.state.queries.map((each) => each.name).join("\n");
    if (names !== this.listed) {
      this.listed = names;
      this.cards = new Map(this.state.queries.map((each) => [each.name, new Card(this, each.name)]));
      replace(nav, el("h2", {}, "Queries"), [...this.cards.values()].map((card) => card.node),
        this.state.queries.length ? null : el("p", { class: "hint" }, "No query runs. Write one in the editor."),
        el("button", { class: "new steer", "data-order": "query", onclick: () => this.open("editor") }, "New query"));
    }
    for (const query of this.state.queries) this.cards.get(query.name).show(query);
  }

  // -- views -----------------------------------------------------------------------------------------------------

  makeTabs() {
    this.tabs = VIEWS.map(([name, words], i) => el("button", {
      role: "tab", id: `tab-${name}`, "aria-controls": "view", onclick: () => this.open(name),
      onkeydown: (event) => {
        const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!by) return;
        const next = VIEWS[(i + by + VIEWS.length) % VIEWS.length][0];
        this.open(next);
        document.getElementById(`tab-${next}`).focus();
      },
    }, words));
    replace(document.getElementById("tabs"), this.tabs);
  }

  open(name) {
    this.view?.closed?.();
    this.name = name;
    const [, , View] = VIEWS.find(([each]) => each === name);
    this.views[name] ??= new View(this);
    this.view = this.views[name];
    for (const [i, tab] of this.tabs.entries()) {
      const isOpen = VIEWS[i][0] === name;
      tab.setAttribute("aria-selected", isOpen);
      tab.tabIndex = isOpen ? 0 : -1;
      if (isOpen) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
    }
    const panel = document.getElementById("view");
    panel.setAttribute("aria-labelledby", `tab-${name}`);
    panel.className = `view-${name}`;
    replace(panel, this.view.node);
    this.view.opened?.();
    if (this.state) this.view.framed?.(this.state);
    if (this.answer) this.view.answered?.(this.answer);
    this.remember();
  }
}

class Card {
  constructor(page, name) {
    this.page = page;
    this.name = name;
    this.figures = el("span", { class: "card-figures" });
    this.final = el("span", { class: "card-figures" });
    this.badge = el("span", { class: "badge" });
    this.chart = el("span", { class: "card-chart" });
    this.node = el("button", { class: "card", "data-query": name, onclick: () => page.select(name) },
      el("span", { class: "card-name" }, name), this.badge, this.figures, this.final, this.chart);
  }

  show(query) {
    const isSelected = this.page.selected === this.name;
    this.node.setAttribute("aria-current", isSelected);
    this.node.title = query.error || query.text;
    const isRunning = query.state === "running";
    this.badge.dataset.kind = isRunning ? (query.lag ? "open" : "final") : query.state;
    say(this.badge, !isRunning ? query.state : query.is_replaced ? "migrating" : query.level?.name ?? "running");
    say(this.figures, isRunning ? `${count(query.said_per_second)}/s, ${count(query.corrected_per_second)}/s corrected`
      : query.error || "it does not run");
    say(this.final, !isRunning ? "" : query.final_before === null ? "nothing final yet" : `final before ${instant(query.final_before)}`);
    if (this.drawn === this.page.points.at(-1)) return; // a point a second
    this.drawn = this.page.points.at(-1);
    replace(this.chart, spark(this.page.points.map((point) => point.queries[this.name]?.[0] ?? null), 200, 22,
      this.page.points.map((point) => point.queries[this.name]?.[1] ?? null)));
  }
}

const page = new Page();
page.begin();
globalThis.everwhenPage = page; // for whoever looks with the browser's own tools
