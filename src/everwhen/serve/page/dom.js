// Elements are made here and nowhere else: text is always text, so nothing of a stream is ever markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.setAttribute("class", value);
    else if (name === "value" && "value" in node) node.value = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function el(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

export function replace(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
}

// Sets a text only where it changes, so that screen readers and selections are left alone.
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

let clearing = 0;

export function toast(words, isBad = false) {
  const node = document.getElementById("toast");
  node.className = isBad ? "bad shown" : "shown";
  say(node, words);
  clearTimeout(clearing);
  clearing = setTimeout(() => { node.className = ""; }, isBad ? 9000 : 4000);
}
