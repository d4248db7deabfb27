// 05: time to the target as an area, steps by seconds per step, and the batch that makes it least.

// Fitted to a recorded run on two cores: milliseconds for each sample, and the fewest steps.
const [SAMPLE, LEAST] = [0.00125, 68];
const SMALL = 64;
// How the steps grow with batch / 64 where the learning rate does not follow. Fitted, too.
const LAG = { linear: 0, root: 0.15, stays: 0.5 };
const NO_WALL = 2 ** 17;
const BATCHES = steps(0, 52, 1).map((i) => Math.round(8 * 2 ** (i / 4)));
// `fixed`: cost of a step, as so many samples; `noise`: the noise scale; `wall`: what memory holds.
const OPENS = { batch: SMALL, fixed: 230, noise: 1050, wall: NO_WALL, rate: "linear" };
const TIMES = [1, 2, 4];
const GROWN = 4;

function stepsOf({ batch, noise, rate }) {
  return LEAST * (1 + noise / batch) * Math.max(1, (batch / SMALL) ** LAG[rate]);
}

const stepTime = ({ batch, fixed }) => SAMPLE * (fixed + batch);
const area = (state) => stepsOf(state) * stepTime(state);

// The batch with the smallest area that memory holds, to 1 %.
function best(state) {
  let found = BATCHES[0];
  for (let batch = found; batch <= Math.min(state.wall, BATCHES.at(-1)); batch *= 1.01) {
    if (area({ ...state, batch }) < area({ ...state, batch: found })) found = batch;
  }
  return found;
}

// How many times as large the best batch gets by a fixed cost of four times: the nearest bet.
function answer(state) {
  const ratio = best({ ...state, fixed: GROWN * state.fixed }) / best(state);
  return [TIMES[nearest(TIMES.map(Math.log2), Math.log2(ratio))]];
}

// ---------------------------------------------------------------- drawing

const BEFORE = Number(best(OPENS).toPrecision(2));
const CLOSE = 1.12; // a batch within this factor of the best one has found it
const PRESETS = {
  ours: { fixed: OPENS.fixed, noise: OPENS.noise },
  gpu: { fixed: 3000, noise: OPENS.noise },
  full: { fixed: 10, noise: OPENS.noise },
  late: { fixed: OPENS.fixed, noise: 10 * OPENS.noise },
};
const NAMES = {
  ours: "our network",
  gpu: "a GPU waits for calls",
  full: "small fixed cost",
  late: "late in training",
  own: "your own",
};

const whole = (value) => Math.round(value).toLocaleString("en");
const rounded = (value) => whole(Number(value.toPrecision(2)));
const seconds = (ms) => `${Number((ms / 1000).toPrecision(2))} s`;
const paces = (ms) => `${Number(ms.toPrecision(2))} ms`;
const fits = ({ batch, wall }) => batch <= wall;

// -1 where a smaller batch arrives sooner, 1 where a larger one does, 0 at the best.
function way(state) {
  const ratio = best(state) / state.batch;
  if (ratio < CLOSE && ratio > 1 / CLOSE) return 0;
  return Math.sign(ratio - 1);
}

const colour = (state) => (!fits(state) ? "red" : way(state) === 0 ? "green" : "blue");

function places({ width, narrow }) {
  if (narrow) {
    return {
      areas: { left: 44, right: width - 8, top: 26, bottom: 206 },
      curve: { left: 44, right: width - 14, top: 274, bottom: 396 },
    };
  }
  const split = Math.round(width * 0.56);
  return {
    areas: { left: 48, right: split, top: 26, bottom: 256 },
    curve: { left: split + 62, right: width - 14, top: 26, bottom: 256 },
  };
}

// A rectangle: steps wide, milliseconds per step high.
function drawArea(pen, state, [x, y], box, hue) {
  const [right, top] = [x(stepsOf(state)), y(stepTime(state))];
  if (hue !== "grey") {
    pen.rect(box.left, top, right - box.left, box.bottom - top, `fill soft ${hue}`);
  }
  const edge = [[box.left, top], [right, top], [right, box.bottom]];
  pen.path(edge, `line ${hue} ${hue === "grey" ? "dash" : "thick"}`);
}

// Batch and time at a rectangle's corner, where no other words are: `taken` has their places.
function drawWords(pen, state, [x, y], box, hue, taken) {
  const words = `${rounded(state.batch)}: ${seconds(area(state))}`;
  const [right, up] = [x(stepsOf(state)), y(stepTime(state)) - 7];
  const length = 8 * words.length;
  const left = right + 6 + length > box.right ? right - length : right + 6;
  const over = ([x1, y1]) => Math.abs(x1 - left) < 90 && Math.abs(y1 - up) < 14;
  if (taken.some(over)) return;
  taken.push([left, up]);
  const before = left < right;
  pen.text(before ? right : left, up, words, `small bold ${hue} ${before ? "end" : ""}`);
}

function drawAreas(pen, state, box) {
  const ghosts = [SMALL, BEFORE].map((batch) => ({ ...state, batch }));
  const all = [state, ...ghosts];
  const most = [stepsOf, stepTime].map((of) => Math.max(...all.map(of)));
  const x = linear(0, 1.04 * most[0], box.left, box.right);
  const y = linear(0, 1.16 * most[1], box.bottom, box.top);
  const title = "time of a step; area = time to target";
  pen.text(box.left - 34, box.top - 12, title, "small faint");
  rows(pen, ticks(0, 1.16 * most[1], 3).slice(1), y, box.left, box.right, paces);
  columns(pen, ticks(0, most[0], 4), x, box.bottom, whole);
  pen.line(box.left, box.bottom, box.right, box.bottom, "hair");
  pen.text(box.right, box.bottom + 34, "steps to the target", "small faint end");
  const taken = [];
  const drawn = [[state, colour(state)], ...ghosts.map((ghost) => [ghost, "grey"])];
  for (const [each, hue] of [...drawn].reverse()) drawArea(pen, each, [x, y], box, hue);
  for (const [each, hue] of drawn) drawWords(pen, each, [x, y], box, hue, taken);
}

const batchesOf = ({ left, right }) => logarithmic(BATCHES[0], BATCHES.at(-1), left, right);

// Time to the target by the batch; in grey as it was at first. Returns the place of the batch.
function drawCurve(pen, state, box) {
  const x = batchesOf(box);
  const first = BATCHES.map((batch) => area({ ...OPENS, batch }));
  const now = BATCHES.map((batch) => area({ ...state, batch }));
  const [low, high] = [0.7 * Math.min(...first, ...now), Math.max(...first, ...now)];
  const y = logarithmic(low, high, box.bottom, box.top);
  const line = (times) => times.map((time, i) => [x(BATCHES[i]), y(time)]);
  pen.text(box.left - 34, box.top - 12, "time to the target, by batch", "small faint");
  const marks = [0.1, 0.3, 1, 3, 10, 30, 100, 300].map((mark) => 1000 * mark);
  rows(pen, marks.filter((mark) => low < mark && mark < high), y, box.left, box.right, seconds);
  columns(pen, [8, 64, 512, 4096, 32768], x, box.bottom, whole);
  pen.text(box.right, box.bottom + 34, "samples in a batch", "small faint end");
  pen.path(line(first), "line grey thin dash");
  pen.path(line(now), "line blue");
  if (state.wall < NO_WALL) {
    pen.line(x(state.wall), box.top, x(state.wall), box.bottom, "red dash");
    const before = x(state.wall) > (box.left + box.right) / 2;
    pen.text(x(state.wall) + (before ? -6 : 6), box.bottom - 8, "memory",
      `small red ${before ? "end" : ""}`);
  }
  return [x(state.batch), y(area(state))];
}

function inWords(state) {
  const { batch, fixed, noise, wall, rate } = state;
  if (!fits(state)) {
    return `A batch of ${rounded(batch)} does not fit: memory holds ${whole(wall)} samples.`;
  }
  const taken = `${rounded(batch)} samples: ${whole(stepsOf(state))} steps of ` +
    `${paces(stepTime(state))} are ${seconds(area(state))}.`;
  const turn = way(state);
  if (turn > 0) return `${taken} Too small: the steps that a larger batch saves count for more.`;
  if (turn < 0) return `${taken} Too large: the steps it saves cost less than their length.`;
  if (wall < 1.05 * batch) return `${taken} ★ More would be sooner, but does not fit.`;
  const root = `the root of ${whole(fixed)} × ${whole(noise)}`;
  return `${taken} ★ The smallest area${rate === "linear" ? `: the best batch is ${root}` : ""}.`;
}

function render({ el }) {
  const state = { ...OPENS };
  // The name of the present settings; to set it sets these.
  const isNow = ([, { fixed, noise }]) => fixed === state.fixed && noise === state.noise;
  Object.defineProperty(state, "preset", {
    get: () => (Object.entries(PRESETS).find(isNow) ?? ["own"])[0],
    set: (name) => Object.assign(state, PRESETS[name]),
  });
  let put;
  const frame = new Frame(el, {
    name: "area-of-training",
    ask: "A step's fixed cost grows to 4 times: how many times as large is the best batch then?",
    task:
      `At first ${BEFORE} samples have the smallest area. Bet, then drag the batch along its curve.`,
    caption:
      "Simulated. Steps to the target, 68 (1 + noise scale / batch), and the 1.25 µs of a sample " +
      "are fitted to a recorded race on two cores of an Intel Xeon. Learning rate: for 8 times " +
      "the batch, linear is 8 times as large, root √8 times, stays the same; these two need more " +
      "steps, by a fit, too. Nothing is measured here; the panel below trains a real network.",
    state,
    height: (width) => (width < NARROW ? 436 : 296),
    draw: (pen, now, size) => {
      const box = places(size);
      drawAreas(pen, now, box.areas);
      put(...drawCurve(pen, now, box.curve));
      return inWords(now);
    },
  });
  frame.bet({
    options: TIMES.map((times) => [times, times === 1 ? "as large as before" : `${times} times`]),
    answer,
    play: (times) => ({ ...OPENS, fixed: GROWN * OPENS.fixed, batch: times * BEFORE }),
  });
  frame.menu({ name: "preset", label: "machine and task", options: Object.entries(NAMES) });
  const samples = (value) => `${whole(value)} samples`;
  const doubled = (low, high) => steps(low, high, 1).map((i) => 2 ** i);
  const fixed = doubled(-5, 5).map((times) => OPENS.fixed * times);
  frame.slider({ name: "batch", label: "batch", values: BATCHES, text: rounded });
  frame.slider({ name: "fixed", label: "fixed cost of a step", values: fixed, text: samples });
  const noise = doubled(-6, 6).map((times) => OPENS.noise * times);
  frame.slider({ name: "noise", label: "noise scale", values: noise, text: samples });
  frame.slider({
    name: "wall",
    label: "memory holds",
    values: doubled(7, 17),
    text: (size) => (size < NO_WALL ? samples(size) : "any batch"),
  });
  frame.choice({
    name: "rate",
    label: "learning rate",
    options: [["linear", "linear"], ["root", "root"], ["stays", "stays"]],
  });
  put = frame.grip({
    name: "batch",
    label: "batch",
    values: BATCHES,
    text: rounded,
    from: (x) => batchesOf(places(frame.size()).curve).back(x),
  });
  return () => frame.close();
}

export { BATCHES, BEFORE, OPENS, TIMES, stepsOf, stepTime, area, best, way, answer };
export default { render };
