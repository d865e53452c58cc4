// Axis scales and ticks: linear, logarithmic or categorical.

function ticks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((m) => m * power >= raw) * power;
  const out = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) out.push(i * step);
  return out;
}

function logTicks(low, high) {
  const out = [];
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p++)
    for (const m of [1, 2, 5]) if (m * 10 ** p >= low * 0.999 && m * 10 ** p <= high * 1.001) out.push(m * 10 ** p);
  if (!out.length) return [Math.sqrt(low * high)];
  return out.length > 7 ? out.filter((t) => /^1|^0\.0*1$/.test(String(t))) : out;
}

const shortNumber = (x) => (Math.abs(x) >= 1e5 ? x.toExponential(0) : String(+x.toPrecision(4))).replace("-", "−");

function scaleOf(axis, from, to) {
  if (axis.categories) {
    const step = (to - from) / axis.categories.length;
    const place = (x) => from + step * (axis.categories.indexOf(x) + 0.5);
    return { place, ticks: axis.categories, text: String, step };
  }
  let [low, high] = axis.range;
  if (axis.log) {
    [low, high] = [low / 1.15, high * 1.15];
    const ratio = Math.log(high / low);
    const place = (x) => from + ((to - from) * Math.log(x / low)) / ratio;
    return { place, ticks: logTicks(low, high), text: shortNumber, step: 0 };
  }
  const room = axis.tight ? 0 : (high - low || Math.abs(high) || 1) * 0.06;
  [low, high] = [low - room, high + room];
  if (axis.floor !== undefined && low < axis.floor) low = axis.floor;
  const place = (x) => from + ((to - from) * (x - low)) / (high - low || 1);
  return {
    place,
    ticks: ticks(low, high, Math.max(2, Math.abs(to - from) / (from > to ? 42 : 80))),
    text: shortNumber,
    step: 0,
  };
}
