// SQL as text: its words by kind, and what the word at the caret may become.  Pure functions.

const WORDS = new Set(`ALL ALTER AND ARRIVES AS ASC BETWEEN BY CASE CAST CONSISTENCY CONSTANT CREATE CROSS CUBE DAYS DESC DISTINCT DROP
ELSE EMIT END EXCEPT EXISTS EXPLAIN FILTER FIRST FROM FULL GROUP GROUPING HAVING HOURS IN INNER INSERT INTERSECT INTERVAL INTO IS JOIN
KEY LAST LATE LEFT LIKE LIMIT LIFETIME LMERGE MATCH_RECOGNIZE MIDDLE MINUTES NATURAL NOT NOW NULL NULLS OFFSET ON ONLY OR ORDER ORDERED OUTER OVER
PARTITION QUERY RANGE RECURSIVE RELATION REMEMBER REPLACE RIGHT ROLLUP ROWS SECONDS SELECT SETS SLIDE STREAM STRONG TEMPORAL THEN
UNBOUNDED UNION USING VALUES VARYING WEAK WHEN WHERE WINDOW WITH WITHIN`.split(/\s+/));
const PIECE = /(--[^\n]*|\/\*[\s\S]*?(?:\*\/|$))|('(?:[^']|'')*'?)|(\b\d+(?:\.\d+)?\b)|([A-Za-z_][A-Za-z_0-9]*)|([\s\S])/g;
const KINDS = [null, "comment", "string", "number", "word", null];

// Pieces of a text with a kind each; what lies in the error's span is marked as wrong.
export function pieces(text, error = null) {
  const found = [];
  const wrong = error ? [error.start, Math.max(error.end, error.start + 1)] : [-1, -1];
  for (const match of text.matchAll(PIECE)) {
    const at = KINDS.findIndex((_, i) => i > 0 && match[i] !== undefined);
    const kind = at === 4 ? (WORDS.has(match[0].toUpperCase()) ? "keyword" : "") : KINDS[at] ?? "";
    const isWrong = match.index < wrong[1] && match.index + match[0].length > wrong[0];
    const whole = [kind, isWrong ? "wrong" : ""].filter(Boolean).join(" ");
    const last = found.at(-1);
    if (last && last.kind === whole) last.words += match[0];
    else found.push({ kind: whole, words: match[0] });
  }
  if (error && error.start >= text.length) found.push({ kind: "wrong", words: " " });
  return found;
}

export function wordBefore(text, at) {
  const word = text.slice(0, at).match(/[A-Za-z_][A-Za-z_0-9.]*$/)?.[0] ?? "";
  return { word, start: at - word.length };
}

export function candidates(word, names) {
  const [stream, column] = word.includes(".") ? [word.slice(0, word.lastIndexOf(".")), word.slice(word.lastIndexOf(".") + 1)] : [null, word];
  const begins = (each) => each.toLowerCase().startsWith(column.toLowerCase()) && each.toLowerCase() !== column.toLowerCase();
  const columns = [...new Set(Object.values(names.streams).flat())];
  if (stream !== null) {
    const known = Object.entries(names.streams).find(([name]) => name.toLowerCase() === stream.toLowerCase());
    return (known ? known[1] : columns).filter(begins).map((each) => `${stream}.${each}`);
  }
  if (word.length < 2) return [];
  const isUpper = word === word.toUpperCase();
  const keywords = [...WORDS].map((each) => (isUpper ? each : each.toLowerCase()));
  return [...new Set([...Object.keys(names.streams), ...columns, ...names.functions.map((each) => `${each}(`), ...keywords])].filter(begins);
}
