// Small charts: a line over the last minutes, and beside it what was corrected.

import { el, svg } from "./dom.js";

function line(values, width, height, most) {
  const step = width / Math.max(values.length - 1, 1);
  let path = "", pen = "M";
  values.forEach((value, i) => {
    if (value === null || value === undefined) { pen = "M"; return; }
    const y = height - 1 - ((height - 2) * Math.min(value, most)) / most;
    path += `${pen}${(i * step).toFixed(1)} ${y.toFixed(1)}`;
    pen = "L";
  });
  return path;
}

export function spark(values, width, height, others = null) {
  const most = Math.max(1e-9, ...values.filter((value) => value !== null));
  const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "spark", "aria-hidden": "true",
    preserveAspectRatio: "none" });
  drawn.append(svg("path", { d: line(values, width, height, most), class: "spark-line" }));
  if (others) drawn.append(svg("path", { d: line(others, width, height, most), class: "spark-other" }));
  return drawn;
}

export function chart(title, values, shown, others = null, otherTitle = "") {
  const known = values.filter((value) => value !== null && value !== undefined);
  const last = known.length ? known.at(-1) : null;
  const most = known.length ? Math.max(...known) : null;
  return el("figure", { class: "chart" },
    el("figcaption", {}, el("b", {}, shown(last)), ` ${title}`,
      el("span", { class: "most" }, ` max ${shown(most)}`),
      others ? el("span", { class: "key" }, ` ${otherTitle}`) : null),
    spark(values, 300, 56, others));
}
