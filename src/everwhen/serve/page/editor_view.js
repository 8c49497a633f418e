// The editor: SQL with colours and completion, its plan as one types, errors at their place; start, change, stop.

import { get, ofQuery, post } from "./api.js";
import { el, replace, say, toast } from "./dom.js";
import { candidates, pieces, wordBefore } from "./sql_text.js";

const PAUSE = 250;
// What looks at what runs is asked for, and not because somebody types.
const RUNNING = /^\s*(explain\s+)?(waiting|analyze)\b/i;

export class EditorView {
  constructor(page) {
    this.page = page;
    this.names = { streams: {}, functions: [], queries: [] };
    this.ground = el("pre", { class: "ground", "aria-hidden": "true" });
    this.area = el("textarea", { id: "sql", spellcheck: "false", autocapitalize: "off", autocomplete: "off",
      "aria-label": "SQL", "aria-describedby": "trouble", rows: 9,
      placeholder: "SELECT … FROM … WINDOW(RANGE 10 SECONDS) GROUP BY …",
      oninput: () => this.typed(), onscroll: () => this.scrolled(), onkeydown: (event) => this.key(event),
      onclick: () => this.suggest(), onkeyup: (event) => { if (event.key.startsWith("Arrow")) this.suggest(); } });
    this.choices = el("div", { class: "choices", id: "choices", role: "listbox", "aria-label": "Completions" });
    this.trouble = el("pre", { class: "trouble", id: "trouble", role: "status" });
    this.plan = el("pre", { class: "told", id: "plan" });
    this.name = el("input", { class: "steer", "data-order": "query", id: "name", placeholder: "name (optional)", "aria-label": "The name of the query", size: 16 });
    this.startButton = el("button", { class: "steer primary", "data-order": "query", id: "start", onclick: () => this.start() }, "Start");
    this.alterButton = el("button", { class: "steer", "data-order": "alter", id: "alter", onclick: () => this.alter() }, "Change");
    this.stopButton = el("button", { class: "steer", "data-order": "stop", id: "stop", onclick: () => this.stop() }, "Stop");
    this.dropButton = el("button", { class: "steer danger", "data-order": "query", id: "drop", onclick: () => this.drop() }, "Drop");
    this.loadButton = el("button", { id: "load", onclick: () => this.load() }, "Edit its text");
    this.about = el("span", { class: "hint" });
    this.streams = el("div", { class: "streams" });
    this.node = el("div", { class: "split" },
      el("div", { class: "pane" },
        el("div", { class: "editor" }, this.ground, this.area), this.choices, this.trouble,
        el("div", { class: "orders" }, this.name, this.startButton),
        el("div", { class: "orders" }, this.about, this.loadButton, this.alterButton, this.stopButton, this.dropButton),
        el("h2", {}, "Its plan"), this.plan),
      el("aside", { class: "side" }, el("h2", {}, "Streams"), this.streams));
  }

  async opened() {
    this.color(null);
    this.selected();
    await this.refresh();
    this.explain();
  }

  async refresh() {
    try {
      this.names = await get("/api/names");
      const { streams } = await get("/api/streams");
      replace(this.streams, streams.length ? streams.map((each) => el("details", { open: streams.length < 6 },
        el("summary", {}, el("b", {}, each.name), ` ${each.kind}${each.from ? ` · ${each.from}` : ""}`),
        el("ul", {}, each.columns.map(([name, type]) => el("li", {}, el("button", { class: "name", onclick: () => this.insert(name) }, name), ` ${type}`)))))
        : el("p", { class: "hint" }, "None is declared: CREATE STREAM …"));
    } catch (problem) { toast(problem.message, true); }
  }

  selected() { this.framed(); }

  framed() {
    const query = this.page.query, isRunning = query?.state === "running";
    say(this.about, query ? `${query.name} ${query.state === "running" ? "runs" : query.state === "failed" ? `failed: ${query.error}` : "is stopped"}:` : "");
    say(this.stopButton, isRunning || !query ? "Stop" : "Start again");
    this.alterButton.disabled = !isRunning;
    this.stopButton.hidden = !isRunning && !this.page.takes("query");
    for (const button of [this.stopButton, this.dropButton, this.loadButton]) button.disabled = !query;
  }

  // -- typing ----------------------------------------------------------------------------------------------------

  typed() {
    this.color(null);
    this.suggest();
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.explain(), PAUSE);
  }

  color(error) {
    const text = this.area.value;
    replace(this.ground, pieces(text, error).map(({ kind, words }) => (kind ? el("span", { class: kind }, words) : words)), "\n");
    this.scrolled();
  }

  scrolled() {
    this.ground.scrollTop = this.area.scrollTop;
    this.ground.scrollLeft = this.area.scrollLeft;
  }

  async explain() {
    const text = this.area.value;
    if (!text.trim()) {
      say(this.trouble, "");
      say(this.plan, "Write a query, and its plan appears here.");
      return;
    }
    if (RUNNING.test(text)) {
      this.clear();
      say(this.plan, "Press Start, and the answer appears here.");
      return;
    }
    try {
      const told = await post("/api/explain", { text });
      if (this.area.value !== text) return;
      this.clear();
      say(this.plan, told.text);
    } catch (problem) {
      if (this.area.value === text) this.tell(problem);
    }
  }

  clear() {
    say(this.trouble, "");
    this.area.removeAttribute("aria-invalid");
    this.color(null);
  }

  tell(problem) {
    const place = problem.told;
    const where = place?.line ? `line ${place.line}, column ${place.column}: ${place.problem}` : problem.message;
    say(this.trouble, where);
    say(this.plan, "No plan: the text has an error.");
    this.area.setAttribute("aria-invalid", "true");
    if (place?.start !== undefined) this.color(place);
  }

  // -- completion ------------------------------------------------------------------------------------------------

  suggest() {
    const { word } = wordBefore(this.area.value, this.area.selectionStart);
    const found = word.length ? candidates(word, this.names) : [];
    replace(this.choices, found.slice(0, 8).map((each, i) => el("button", { role: "option", tabindex: -1,
      "aria-selected": i === 0, onmousedown: (event) => { event.preventDefault(); this.complete(each); } }, each)));
    this.found = found;
  }

  complete(each) {
    const at = this.area.selectionStart, { start } = wordBefore(this.area.value, at);
    this.area.setRangeText(each, start, at, "end");
    this.typed();
    replace(this.choices);
    this.found = [];
  }

  insert(words) {
    const at = this.area.selectionStart;
    this.area.setRangeText(words, at, this.area.selectionEnd, "end");
    this.area.focus();
    this.typed();
  }

  key(event) {
    if (event.key === "Tab" && !event.shiftKey && this.found?.length) {
      event.preventDefault();
      this.complete(this.found[0]);
    } else if (event.key === "Escape") {
      replace(this.choices);
      this.found = [];
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this.start();
    }
  }

  // -- orders ----------------------------------------------------------------------------------------------------

  async tried(path, body) {
    try {
      const told = await post(path, body);
      this.clear();
      const isPlan = (each) => each.kind === "explained", outcomes = told.outcomes ?? [];
      for (const each of outcomes.filter(isPlan)) say(this.plan, each.text);
      const words = outcomes.filter((each) => !isPlan(each)).map((each) => each.text);
      if (words.length) toast(words.join("; "));
      this.refresh();
      return told;
    } catch (problem) {
      this.tell(problem);
      toast(problem.told?.problem ?? problem.message, true);
      return null;
    }
  }

  async start() {
    const name = this.name.value.trim();
    const told = await this.tried("/api/statements", { text: this.area.value, ...(name ? { name } : {}) });
    const made = told?.outcomes.filter((each) => each.kind === "started").at(-1);
    if (made) { this.name.value = ""; this.page.select(made.name); }
  }

  alter() { return this.tried(ofQuery(this.page.selected, "alter"), { text: this.area.value }); }

  stop() {
    const query = this.page.query;
    if (query) this.page.ofQuery(query.name, query.state === "running" ? "stop" : "start", {}, `${query.state === "running" ? "stopped" : "started"} ${query.name}`);
  }

  drop() {
    const query = this.page.query;
    if (query) this.page.ofQuery(query.name, "remove", {}, `dropped ${query.name}`);
  }

  load() {
    this.area.value = this.page.query?.text ?? "";
    this.typed();
    this.area.focus();
  }
}
