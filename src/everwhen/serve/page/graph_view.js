// The graph: every source, operator and query once, with what it does now, and the way that holds the answer back.

import { get, ofQuery } from "./api.js";
import { el, replace, say, svg } from "./dom.js";
import { bytes, count, instant, length, whole } from "./format.js";
import { GAP_X, HEIGHT, WIDTH, heldBack, layout } from "./layout.js";

const AGAIN = 4000; // milliseconds between two looks at what an open node has cost

export class GraphView {
  constructor(page) {
    this.page = page;
    this.boxes = new Map();
    this.drawing = svg("svg", { class: "graph", role: "group", "aria-label": "The graph of what runs" });
    this.legend = el("p", { class: "legend", "aria-live": "off" });
    this.side = el("aside", { class: "side", "aria-label": "What was clicked", "aria-live": "polite", hidden: true });
    this.node = el("div", { class: "split alone" },
      el("div", { class: "pane" }, this.legend, el("div", { class: "scroll", tabindex: 0,
        "aria-label": "Graph, can be scrolled" }, this.drawing)),
      this.side);
  }

  framed(state) {
    const shape = JSON.stringify(state.nodes.map((node) => [node.id, node.inputs]));
    if (shape !== this.shape) {
      this.shape = shape;
      this.draw(state.nodes);
    }
    this.figures(state.nodes);
    if (!this.open) return;
    this.showFigures(state.nodes.find((node) => node.id === this.open));
    if (performance.now() - this.asked > AGAIN) this.tell("analyze", this.cost);
  }

  selected() { if (this.page.state) this.figures(this.page.state.nodes); }

  draw(nodes) {
    const { at, width, height } = layout(nodes);
    this.edges = [];
    this.boxes.clear();
    const lines = svg("g", { class: "edges" }), boxes = svg("g", {});
    for (const node of nodes) {
      const to = at.get(node.id);
      for (const id of node.inputs) {
        const from = at.get(id);
        if (!from) continue;
        const x = from.x + WIDTH, y = from.y + HEIGHT / 2, z = to.y + HEIGHT / 2, bend = GAP_X / 2;
        const path = svg("path", { class: "edge", d: `M${x} ${y}C${x + bend} ${y} ${to.x - bend} ${z} ${to.x} ${z}` });
        lines.append(path);
        this.edges.push({ from: id, to: node.id, path });
      }
      boxes.append(this.box(node, to));
    }
    replace(this.drawing, lines, boxes);
    this.drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.drawing.setAttribute("width", width);
    this.drawing.setAttribute("height", height);
    this.drawing.style.setProperty("--natural", `${width}px`);
  }

  box(node, { x, y }) {
    const text = (dy, name) => svg("text", { x: 12, y: dy, class: name });
    const box = {
      name: text(22, "name"), flow: text(42, "flow"), kept: text(58, "kept"), promise: text(74, "promise"),
      mark: svg("text", { x: WIDTH - 10, y: 22, class: "mark", "text-anchor": "end" }),
    };
    const open = () => this.click(node.id);
    const round = { source: HEIGHT / 2, operator: 8, query: 8 }[node.kind];
    box.group = svg("g", {
      class: `node ${node.kind}`, transform: `translate(${x} ${y})`, tabindex: 0, role: "button", "data-node": node.id,
      onclick: open, onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(); } },
    },
      svg("rect", { width: WIDTH, height: HEIGHT, rx: node.kind === "source" ? 20 : round }),
      node.kind === "query" ? svg("rect", { class: "bar", width: 5, height: HEIGHT, rx: 2 }) : null,
      svg("title", {}, node.does || node.name), box.name, box.flow, box.kept, box.promise, box.mark);
    say(box.name, node.name.length > 16 ? `${node.name.slice(0, 15)}…` : node.name);
    this.boxes.set(node.id, box);
    return box.group;
  }

  figures(nodes) {
    const query = this.page.query;
    const held = query && query.state === "running" ? heldBack(nodes, `query ${query.name}`) : { way: new Set() };
    const waits = query?.lag !== 0 && query?.lag !== undefined;
    const mine = new Set(nodes.filter((node) => node.queries.includes(query?.name)).map((node) => node.id));
    for (const node of nodes) {
      const box = this.boxes.get(node.id);
      if (!box) continue;
      const flow = node.kind === "source" ? `${count(node.out_per_second)} rows/s`
        : `${count(node.in_per_second)} → ${count(node.out_per_second)} rows/s`;
      say(box.flow, flow);
      const busy = node.busy >= 0.005 ? ` · ${Math.round(100 * node.busy)} % busy` : "";
      say(box.kept, node.state_rows ? `${count(node.state_rows)} kept${busy}` : `no state${busy}`);
      say(box.promise, node.ended ? "ended" : node.progress === null ? "nothing final yet" : `final before ${instant(node.progress)}`);
      const onWay = waits && held.way.has(node.id);
      const mark = node.ended ? "■" : onWay ? (node === held.source ? "◷ slow" : "◷") : node.queries.length > 1 ? `×${node.queries.length}` : "";
      say(box.mark, mark);
      const isOf = query ? mine.has(node.id) : true;
      box.group.classList.toggle("waits", onWay);
      box.group.classList.toggle("other", !isOf);
      box.group.classList.toggle("open", node.id === this.open);
      box.group.setAttribute("aria-label",
        `${node.kind} ${node.name}: ${flow}, final before ${instant(node.progress)}${onWay ? ", waits" : ""}`);
    }
    for (const edge of this.edges) {
      edge.path.classList.toggle("waits", waits && held.way.has(edge.from) && held.way.has(edge.to));
      edge.path.classList.toggle("other", query ? !mine.has(edge.to) : false);
    }
    say(this.legend, !query ? "Nothing runs."
      : query.state !== "running" ? `${query.name} ${query.state === "failed" ? `failed: ${query.error}` : "is stopped"}.`
        : query.final_before === null && held.source ? `◷ Nothing of ${query.name} is final yet: ${held.source.name} holds it back. Click a node to see why it waits, and what it has cost.`
        : waits && held.source ? `◷ ${query.name} is final before ${instant(query.final_before)}, ${length(query.lag)} behind what has come: ${held.source.name} holds it back. Click a node to see why it waits, and what it has cost.`
          : `${query.name}: everything that has come is final.`);
  }

  async click(id) {
    this.open = id;
    const node = this.page.state.nodes.find((each) => each.id === id);
    if (!node) return;
    const query = node.queries.includes(this.page.selected) ? this.page.selected : node.queries[0];
    if (node.kind === "query" && query !== this.page.selected) this.page.select(query);
    this.facts = el("dl", { class: "facts" });
    this.why = el("pre", { class: "told", id: "why" }, "looking …");
    this.cost = el("pre", { class: "told", id: "cost" }, "looking …");
    this.side.hidden = false;
    this.node.classList.remove("alone");
    replace(this.side, el("button", { class: "close", "aria-label": "Close", onclick: () => this.close() }, "×"),
      el("h2", {}, node.kind === "operator" ? node.id : node.name), this.facts,
      el("h3", {}, `Why does ${query ?? "it"} wait?`), this.why, el("h3", {}, "What has it cost?"), this.cost);
    this.showFigures(node);
    this.figures(this.page.state.nodes);
    this.boxes.get(id)?.group.scrollIntoView({ block: "nearest", inline: "nearest" });
    this.of = query;
    await Promise.all([this.tell("waiting", this.why), this.tell("analyze", this.cost)]);
  }

  async tell(what, target) {
    if (!this.of) return;
    this.asked = performance.now();
    try {
      say(target, (await get(ofQuery(this.of, what))).text);
    } catch (problem) { say(target, problem.message); }
  }

  close() {
    this.open = null;
    this.side.hidden = true;
    this.node.classList.add("alone");
    this.figures(this.page.state.nodes);
  }

  showFigures(node) {
    if (!node) return;
    const selectivity = node.rows_in ? `${(node.rows_out / node.rows_in).toPrecision(2)} out per row in` : "–";
    const facts = [
      node.does ? ["does", node.does] : null,
      ["rows", node.kind === "source" ? whole(node.rows_out) : `${whole(node.rows_in)} in, ${whole(node.rows_out)} out`],
      node.kind === "operator" ? ["selectivity", selectivity] : null,
      ["keeps", node.state_rows ? `${whole(node.state_rows)} rows, ${bytes(node.state_bytes)}: ${node.keeps}` : "nothing"],
      ["final before", node.ended ? "∞ (it has ended)" : instant(node.progress)],
      ["behind by", length(node.lag)],
      node.kind === "source" && node.silent !== null ? ["last element", `${node.silent.toFixed(1)} s ago`] : null,
      node.dropped ? ["given up", whole(node.dropped)] : null,
      ["used by", node.queries.join(", ")],
    ].filter(Boolean);
    replace(this.facts, facts.map(([name, words]) => [el("dt", {}, name), el("dd", {}, words)]));
  }
}
