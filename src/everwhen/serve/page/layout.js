// Layers from left to right: each node one behind the last of its inputs; within a layer, near to its neighbours.
// A pure function, so that it can be tried without a page.

export const WIDTH = 160, HEIGHT = 86, GAP_X = 28, GAP_Y = 18;

export function layers(nodes) {
  const known = new Map(nodes.map((node) => [node.id, node]));
  const depth = new Map();
  const deep = (node, seen) => {
    if (depth.has(node.id)) return depth.get(node.id);
    if (seen.has(node.id)) return 0;
    seen.add(node.id);
    const before = node.inputs.filter((id) => known.has(id)).map((id) => deep(known.get(id), seen));
    const found = before.length ? Math.max(...before) + 1 : 0;
    depth.set(node.id, found);
    return found;
  };
  for (const node of nodes) deep(node, new Set());
  const last = Math.max(0, ...depth.values());
  for (const node of nodes) if (node.kind === "query") depth.set(node.id, last);
  const found = Array.from({ length: last + 1 }, () => []);
  for (const node of nodes) found[depth.get(node.id)].push(node.id);
  return found;
}

export function layout(nodes) {
  const columns = layers(nodes);
  const inputs = new Map(nodes.map((node) => [node.id, node.inputs]));
  const users = new Map(nodes.map((node) => [node.id, []]));
  for (const node of nodes) for (const id of node.inputs) users.get(id)?.push(node.id);
  const place = new Map();
  const settle = (column) => column.forEach((id, i) => place.set(id, i - (column.length - 1) / 2));
  columns.forEach(settle);
  for (let round = 0; round < 8; round += 1) {
    const near = round % 2 ? users : inputs;
    const order = round % 2 ? [...columns].reverse() : columns;
    for (const column of order) {
      const wish = new Map(column.map((id) => {
        const others = near.get(id).filter((other) => place.has(other));
        return [id, others.length ? others.reduce((sum, other) => sum + place.get(other), 0) / others.length : place.get(id)];
      }));
      column.sort((a, b) => wish.get(a) - wish.get(b) || place.get(a) - place.get(b));
      settle(column);
    }
  }
  const tallest = Math.max(1, ...columns.map((column) => column.length));
  const at = new Map();
  columns.forEach((column, x) => column.forEach((id) => at.set(id, {
    x: 12 + x * (WIDTH + GAP_X),
    y: 12 + (place.get(id) + (tallest - 1) / 2) * (HEIGHT + GAP_Y),
  })));
  return {
    at, width: 24 + columns.length * (WIDTH + GAP_X) - GAP_X, height: 24 + tallest * (HEIGHT + GAP_Y) - GAP_Y,
  };
}

// From a query back to the source that holds it back: the nodes of that way, and the source.
export function heldBack(nodes, from) {
  const known = new Map(nodes.map((node) => [node.id, node]));
  const way = new Set();
  let node = known.get(from), source = null;
  const less = (a, b) => (a === null ? -Infinity : a === "inf" ? Infinity : Number(a)) -
    (b === null ? -Infinity : b === "inf" ? Infinity : Number(b));
  while (node && !way.has(node.id)) {
    way.add(node.id);
    if (node.kind === "source") { source = node; break; }
    const names = node.waits_for.length ? node.waits_for : node.inputs;
    const before = names.map((id) => known.get(id)).filter(Boolean);
    node = before.sort((a, b) => less(a.progress, b.progress))[0];
  }
  return { way, source };
}
