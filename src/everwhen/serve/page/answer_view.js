// The answer: a table as of now or of any instant, what was corrected and what stood before, final and provisional.

import { get, ofQuery } from "./api.js";
import { el, replace, say } from "./dom.js";
import { instant, value, whole } from "./format.js";

const FLASH = 2600;
const MOST_FLASHES = 24; // where more changes at once, nobody could follow, and the browser would be busy with nothing else

export class AnswerView {
  constructor(page) {
    this.page = page;
    this.title = el("h2", {});
    this.text = el("code", { class: "sql" });
    this.badge = el("span", { class: "finality", id: "finality" });
    this.status = el("p", { class: "status", id: "status" });
    this.slider = el("input", { type: "range", min: 0, max: 1, step: 1, value: 1, id: "instant",
      "aria-label": "The instant that is shown", oninput: () => this.slide() });
    this.mark = el("span", { class: "final-mark", "aria-hidden": "true" });
    this.from = el("span", {});
    this.to = el("span", {});
    this.nowButton = el("button", { id: "now", onclick: () => this.follow() }, "Now");
    this.table = el("table", { class: "rows", id: "answer" });
    this.more = el("p", { class: "hint" });
    this.list = el("ol", { class: "corrections", id: "corrections" });
    this.node = el("div", { class: "split" },
      el("div", { class: "pane" },
        el("div", { class: "answer-head" }, this.title, this.badge, this.text),
        el("div", { class: "slide" }, el("div", { class: "track" }, this.slider, this.mark), this.nowButton),
        el("div", { class: "ends" }, this.from, this.status, this.to),
        el("div", { class: "scroll", tabindex: 0, "aria-label": "The rows" }, this.table), this.more),
      el("aside", { class: "side" }, el("h2", {}, "Corrections"),
        el("p", { class: "hint" }, "What was answered, and is answered differently now. The newest first."), this.list));
    this.forget();
  }

  forget() {
    this.seen = new Map();
    this.notes = new Map();
    this.corrected = 0;
    this.rows = new Map();
    this.table.tBodies[0]?.replaceChildren();
  }

  selected() {
    this.forget();
    replace(this.table);
    replace(this.list);
    this.framed(this.page.state);
  }

  framed() {
    const query = this.page.query;
    say(this.title, query?.name ?? "No query");
    say(this.text, query ? query.text.replace(/\s+/g, " ") : "");
    if (query && query.first !== null && query.first !== undefined) this.scale(query);
  }

  scale(query) {
    const whole = Number(query.known_from ?? query.first), now = Number(query.now);
    const first = Math.min(Math.max(whole, Number(query.first)), now);
    this.slider.min = first;
    this.slider.max = now;
    this.slider.step = 1;
    if (this.page.at === "now") this.slider.value = now;
    say(this.from, instant(first));
    say(this.to, instant(query.now));
    const final = query.final_before === "inf" ? now : query.final_before === null ? first : Number(query.final_before);
    const share = now > first ? Math.min(Math.max((final - first) / (now - first), 0), 1) : 1;
    this.mark.style.setProperty("--share", share);
    this.mark.title = `final before ${instant(query.final_before)}`;
  }

  slide() {
    const at = this.slider.value;
    clearTimeout(this.waiting);
    this.page.at = at;
    this.waiting = setTimeout(async () => {
      if (Number(at) >= Number(this.slider.max)) { this.follow(); return; }
      this.forget();
      try {
        this.answered(await get(ofQuery(this.page.selected, "answer"), { at }));
        this.page.lookAt(at);
      } catch (problem) { say(this.status, problem.message); }
    }, 80);
  }

  follow() {
    this.forget();
    this.page.lookAt("now");
  }

  answered(told) {
    if (told.query !== this.page.selected) return;
    if (told.is_now !== (this.page.at === "now")) return;
    const query = this.page.query;
    if (!query) return;
    this.badge.dataset.final = told.final;
    say(this.badge, told.final ? "final" : "provisional");
    this.badge.title = told.final ? "no promise allows it to change any more" : "it may still be corrected";
    const sample = told.sample > 1 ? ` A sample: about 1 row in ${told.sample}.` : "";
    const known = told.known ? "" : " Not all of it is kept.";
    say(this.status, `as of ${told.is_now ? "now, " : ""}${instant(told.at)} · final before ${instant(told.final_before)}.${sample}${known}`);
    this.noteCorrections(told);
    this.showTable(query, told);
    const hidden = told.total - told.rows.reduce((all, each) => all + each.n, 0);
    if (query.hidden) { say(this.more, query.hidden); return; }
    say(this.more, `${whole(told.total)} row${told.total === 1 ? "" : "s"}${hidden > 0 ? `, the first ${whole(told.rows.length)} shown` : ""}`);
  }

  // -- corrections -----------------------------------------------------------------------------------------------

  noteCorrections(told) {
    const fresh = (told.corrections ?? []).filter((each) => each.number > this.corrected);
    if (!fresh.length) return;
    const isFirst = this.corrected === 0;
    this.corrected = fresh.at(-1).number;
    for (const each of fresh) {
      const key = JSON.stringify([each.vs, each.row]);
      const notes = this.notes.get(key) ?? [];
      notes.push(each);
      this.notes.set(key, notes.slice(-8));
    }
    if (this.notes.size > 500) this.notes = new Map([...this.notes].slice(-300));
    const items = fresh.reverse().map((each) => correction(each, isFirst || fresh.length > MOST_FLASHES));
    this.list.prepend(...items);
    while (this.list.children.length > 40) this.list.lastChild.remove();
  }

  // -- rows ------------------------------------------------------------------------------------------------------

  showTable(query, told) {
    const columns = query.columns.map(([name]) => name);
    const head = columns.join("\n");
    if (head !== this.head || !this.table.tHead) {
      this.head = head;
      this.rows.clear();
      replace(this.table, el("thead", {}, el("tr", {}, el("th", { scope: "col", class: "how" }, "is"),
        query.columns.map(([name, type]) => el("th", { scope: "col", class: /int|float|double/.test(type) ? "number" : null }, name)), el("th", { scope: "col" }, "holds from"),
        el("th", { scope: "col" }, "until"))), el("tbody", {}));
    }
    const body = this.table.tBodies[0], now = performance.now(), isFirst = this.seen.size === 0;
    const keys = new Set(told.rows.map((each) => each.id)), free = [];
    for (const [key, row] of this.rows) {
      if (keys.has(key)) continue;
      this.rows.delete(key);
      free.push(row);
    }
    const isMuch = told.rows.reduce((all, each) => all + !this.seen.has(each.id), 0) > MOST_FLASHES;
    const next = new Map(), order = [];
    for (const each of told.rows) {
      const key = each.id;
      const before = this.seen.get(key);
      next.set(key, { ve: each.ve, born: before?.born ?? (isFirst || isMuch ? -1e9 : now) });
      const row = this.rows.get(key) ?? free.pop() ?? this.makeRow(columns.length);
      this.rows.set(key, row);
      this.fillRow(row, each, told, next.get(key).born, before, isMuch);
      order.push(row.node);
    }
    for (const row of free) row.node.remove();
    if (order.some((node, i) => body.children[i] !== node)) {
      if (isMuch) body.replaceChildren(...order);
      else order.forEach((node, i) => { if (body.children[i] !== node) body.insertBefore(node, body.children[i] ?? null); });
    }
    this.seen = next;
  }

  makeRow(width) {
    const how = el("td", { class: "how" });
    const cells = Array.from({ length: width }, () => el("td", {}));
    const vs = el("td", { class: "time" }), ve = el("td", { class: "time" });
    return { node: el("tr", {}, how, cells, vs, ve), how, cells, vs, ve };
  }

  fillRow(row, each, told, born, before, isMuch) {
    const final = told.final_before === "inf" || (each.ve !== "inf" && told.final_before !== null &&
      Number(each.ve) <= Number(told.final_before));
    each.row.forEach((cell, i) => {
      say(row.cells[i], value(cell));
      mark(row.cells[i], cell === null ? "null" : typeof cell === "number" ? "number" : "");
    });
    const notes = this.notes.get(JSON.stringify([each.vs, each.row])) ?? [];
    const isNew = performance.now() - born < FLASH;
    const last = notes.at(-1);
    const isCorrected = Boolean(last);
    say(row.how, isCorrected ? (last.kind === "late" ? "↺ late" : "↺ corrected") : final ? "● final" : told.final ? "◐ so far" : "○ open");
    row.how.title = isCorrected ? "it was corrected: see what stood before under until"
      : final ? "it can change no more" : told.final ? "here it is final; its end may still move" : "it may still be corrected";
    say(row.vs, instant(each.vs));
    const stood = notes.filter((note) => note.kind === "moved").map((note) => note.ve);
    if (stood.length || row.ve.firstElementChild) {
      replace(row.ve, stood.slice(-2).map((t) => [el("del", {}, instant(t)), " "]).flat(), instant(each.ve));
    } else say(row.ve, instant(each.ve));
    mark(row.node, `${final ? "final" : "open"}${isNew ? " fresh" : ""}${isCorrected ? " corrected" : ""}` +
      `${!isMuch && before && before.ve !== each.ve ? " moved" : ""}`);
  }
}

function mark(node, name) { if (node.className !== name) node.className = name; }

function correction(each, isOld) {
  const row = each.row.map(value).join(" · ");
  const words = each.kind === "late" ? `came late: from ${instant(each.vs)} on`
    : each.kind === "taken back" ? `taken back from ${instant(each.vs)} on`
      : `ends at ${instant(each.vnew)}, not at ${instant(each.ve)}`;
  return el("li", { class: `${each.kind.replace(" ", "-")}${isOld ? "" : " fresh"}` },
    each.kind === "taken back" ? el("del", {}, row) : el("ins", {}, row), el("span", {}, words));
}
