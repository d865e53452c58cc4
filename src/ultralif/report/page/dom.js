// Create elements without parsing markup: text is always inserted as text.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "color") node.style.setProperty("--color", value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const h = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const find = (id) => document.getElementById(id);

// Format a number for reading: a few digits, a real minus sign, and nothing for a missing value.
function spell(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return String(value).replace("-", "−");
  const short = size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(2) : value.toFixed(digits);
  return short.replace("-", "−");
}

const fixed = (digits) => (value) =>
  value === null || value === undefined ? "–" : value.toFixed(digits).replace("-", "−");

const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;

// The half width of a mean's 95 % interval, by Student's t.
function halfWidth(values) {
  if (values.length < 2) return null;
  const quantiles = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262];
  const centre = mean(values);
  const spread = Math.sqrt(values.reduce((sum, x) => sum + (x - centre) ** 2, 0) / (values.length - 1));
  return ((quantiles[values.length - 2] ?? 1.96 + 2.4 / (values.length - 1)) * spread) / Math.sqrt(values.length);
}

function groupBy(items, key) {
  const groups = new Map();
  for (const item of items) {
    const name = key(item);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(item);
  }
  return groups;
}

const unique = (values) => [...new Set(values)];
const ascending = (values) => unique(values).sort((a, b) => a - b);

function bytes(text) {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

// A labelled <select>; options are [value, text] pairs.
function choose(label, options, onchange, value) {
  const select = h("select", { onchange: () => onchange(select.value) });
  select.append(...options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)));
  return h("label", { class: "choice" }, h("span", {}, label), select);
}

// Call draw(width) now and whenever the width of a box changes.
function onWidth(box, draw) {
  let last = 0;
  const again = () => {
    const width = Math.round(box.clientWidth);
    if (width && width !== last) draw((last = width));
  };
  new ResizeObserver(again).observe(box);
  again();
}
