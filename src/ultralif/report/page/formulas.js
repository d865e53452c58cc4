// The neurons in `ultralif.functional`, one step at a time, with exact derivatives by dual numbers.
// A number x that depends on the input strength is a pair: its value and its derivative.

const formulas = (() => {
  function sigmoid(z) {
    const small = Math.exp(-Math.abs(z));
    return z >= 0 ? 1 / (1 + small) : small / (1 + small);
  }

  // L_eps(x_1 ... x_n), and its derivative: the mean of the terms' derivatives, weighted by softmax(x / eps).
  function softMax(terms, eps) {
    const top = Math.max(...terms.map((x) => x[0]));
    const weights = terms.map((x) => Math.exp((x[0] - top) / eps));
    const total = weights.reduce((a, b) => a + b, 0);
    const slope = terms.reduce((sum, x, i) => sum + (weights[i] / total) * x[1], 0);
    return [top + eps * Math.log(total), slope];
  }

  // The maximum; if several terms tie, they contribute equally to the derivative.
  function hardMax(terms) {
    const top = Math.max(...terms.map((x) => x[0]));
    const best = terms.filter((x) => x[0] === top);
    return [top, best.reduce((sum, x) => sum + x[1], 0) / best.length];
  }

  function softSpike(v, threshold, eps) {
    const s = sigmoid((v - threshold) / eps);
    return [s, (s * (1 - s)) / eps];
  }

  // The spike, and the membrane after a reset to 0. Outside soft mode, the reset is not differentiated.
  function fire(membrane, { threshold, eps, mode }) {
    const [soft, slope] = softSpike(membrane[0], threshold, eps);
    const dspike = slope * membrane[1];
    const spike = mode === "soft" ? soft : Number(membrane[0] > threshold);
    const dv = membrane[1] * (1 - spike) - (mode === "soft" ? membrane[0] * dspike : 0);
    return { membrane, spike: [spike, dspike], v: [membrane[0] * (1 - spike), dv] };
  }

  const couple = (terms, { eps, mode }) => (mode === "tropical" ? hardMax(terms) : softMax(terms, eps));

  function ultralifStep(current, v, options) {
    return fire(couple([[v[0] + Math.log(options.leak), v[1]], current], options), options);
  }

  // A ring: every neuron with its two neighbours.
  function ultradlifStep(currents, vs, options) {
    const n = vs.length;
    const drift = options.centered && options.mode !== "tropical" ? options.eps * Math.log(3) : 0;
    return currents.map((current, i) => {
      const coupled = couple([vs[(i + n - 1) % n], vs[i], vs[(i + 1) % n]], options);
      return fire([coupled[0] - drift + current[0], coupled[1] + current[1]], options);
    });
  }

  // A hard spike, differentiated by LIF's default surrogate, an arctangent; its reset is not differentiated.
  function lifStep(current, v, { leak, threshold, slope = 2 }) {
    const membrane = [leak * v[0] + current[0], leak * v[1] + current[1]];
    const bend = (Math.PI / 2) * slope * (membrane[0] - threshold);
    const spike = [Number(membrane[0] > threshold), (slope / 2 / (1 + bend * bend)) * membrane[1]];
    return { membrane, spike, v: [membrane[0] * (1 - spike[0]), membrane[1] * (1 - spike[0])] };
  }

  // Run a neuron from rest on strength * shape[t]; derivatives are with respect to the strength. UltraDLIF is
  // on a ring whose other neurons get no input; return the results of the driven neuron, and all membranes.
  function run(neuron, shape, strength, options) {
    const drive = shape.map((x) => [strength * x, x]);
    const out = { membrane: [], spike: [], v: [], dmembrane: [], dspike: [], ring: [] };
    let v = [0, 0];
    let ring = Array.from({ length: options.neurons ?? 9 }, () => [0, 0]);
    const middle = ring.length >> 1;
    for (const current of drive) {
      let step;
      if (neuron === "UltraDLIF") {
        const currents = ring.map((_, i) => (i === middle ? current : [0, 0]));
        const steps = ultradlifStep(currents, ring, options);
        ring = steps.map((each) => each.v);
        out.ring.push(steps.map((each) => each.membrane[0]));
        step = steps[middle];
      } else {
        step = neuron === "LIF" ? lifStep(current, v, options) : ultralifStep(current, v, options);
        v = step.v;
      }
      out.membrane.push(step.membrane[0]);
      out.dmembrane.push(step.membrane[1]);
      out.spike.push(step.spike[0]);
      out.dspike.push(step.spike[1]);
      out.v.push(step.v[0]);
    }
    return out;
  }

  return { sigmoid, softSpike, run };
})();
