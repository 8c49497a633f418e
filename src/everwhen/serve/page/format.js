// Numbers, instants and lengths as people read them.  An instant is ticks, null (before all) or "inf".

const PLAIN = new Intl.NumberFormat("en");
let axis = { tick: 1e6, dated: false, clock: false };

export function setAxis(given) { axis = given; }

export function count(n) {
  if (n === null || n === undefined) return "–";
  const size = Math.abs(n);
  if (size < 10000) return PLAIN.format(Math.round(size < 10 ? n * 10 : n * 1) / (size < 10 ? 10 : 1));
  if (size < 1e6) return `${(n / 1e3).toFixed(size < 1e5 ? 1 : 0)} k`;
  return size < 1e9 ? `${(n / 1e6).toFixed(1)} M` : `${(n / 1e9).toFixed(1)} G`;
}

export function whole(n) { return n === null || n === undefined ? "–" : PLAIN.format(n); }

export function bytes(n) {
  for (const unit of ["B", "kB", "MB"]) {
    if (n < 1000) return `${n < 10 && unit !== "B" ? n.toFixed(1) : Math.round(n)} ${unit}`;
    n /= 1000;
  }
  return `${n.toFixed(1)} GB`;
}

export function instant(t) {
  if (t === null || t === undefined) return "−∞";
  if (t === "inf") return "∞";
  const n = Number(t);
  if (axis.dated) {
    const ms = (n * axis.tick) / 1e6;
    if (Math.abs(ms) > 8.64e15) return PLAIN.format(n);
    return new Date(ms).toISOString().replace("T", " ").replace(/\.000Z$/, "").replace("Z", "");
  }
  return axis.clock ? clock((n * axis.tick) / 1e9) : PLAIN.format(n);
}

function clock(seconds) {
  const sign = seconds < 0 ? "−" : "";
  const s = Math.abs(seconds), minutes = Math.floor(s / 60);
  return `${sign}${minutes}:${(s - 60 * minutes).toFixed(3).padStart(6, "0")}`;
}

// A length of ticks: "1.2 s".
export function length(ticks) {
  if (ticks === null || ticks === undefined) return "–";
  if (ticks === "inf") return "∞";
  const ns = Number(ticks) * axis.tick;
  if (ns === 0) return "0";
  for (const [unit, size] of [["d", 864e11], ["h", 36e11], ["min", 6e10], ["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
    if (Math.abs(ns) >= size) return `${trim(ns / size)} ${unit}`;
  }
  return `${ns} ns`;
}

function trim(n) { return n < 10 ? String(Math.round(n * 10) / 10) : PLAIN.format(Math.round(n)); }

export function value(v) {
  if (v === null) return "null";
  if (typeof v === "number") return Number.isInteger(v) ? String(v) : String(Math.round(v * 1e6) / 1e6);
  return typeof v === "object" ? JSON.stringify(v) : String(v);
}
