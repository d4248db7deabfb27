// 03: the learning rate over a training run, bent by six grips, and the loss that comes of it.

const STEPS = 200;
const GRIPS = 6;
// The learning rates that a grip can take.
const RATES = Array.from({ length: 61 }, (_, i) => Number((0.01 * 300 ** (i / 60)).toPrecision(3)));
const NOISE = 0.3; // of a gradient
const START = [1, 5]; // of the weights
const CURVATURE = [1, 0.02]; // of the loss along each: a steep direction and a flat one
const CLIFF = { curvature: 8, steps: 20 }; // a steep start: so steep is it, for so many steps
const LOST = 100; // from such a loss there is no way back

// The grips of each schedule, as parts of its highest rate.
const SHAPES = {
  constant: [1, 1, 1, 1, 1, 1],
  linear: [1, 0.8, 0.6, 0.4, 0.2, 0],
  cosine: Array.from({ length: GRIPS }, (_, i) => (1 + Math.cos((Math.PI * i) / 5)) / 2),
  cycle: [0.1, 0.55, 1, 0.55, 0.1, 0],
  wsd: [0.1, 1, 1, 1, 1, 0],
  cyclic: [0.1, 1, 0.1, 1, 0.1, 1],
  rise: [0.1, 0.55, 1, 1, 1, 1],
  fall: [1, 1, 1, 0.55, 0.1, 0],
};

// The rate of each step: straight lines between the grips.
function rates(grips) {
  return Array.from({ length: STEPS }, (_, step) => {
    const place = (step / (STEPS - 1)) * (GRIPS - 1);
    const i = Math.min(GRIPS - 2, Math.floor(place));
    return grips[i] + (place - i) * (grips[i + 1] - grips[i]);
  });
}

function curvatures(start, step) {
  return start === "steep" && step < CLIFF.steps ? [CLIFF.curvature, CURVATURE[1]] : CURVATURE;
}

// The mean loss after each step, over all noises: exact. It ends where training is lost.
function losses(grips, start) {
  const squares = START.map((weight) => weight ** 2);
  const found = [];
  for (const [step, rate] of rates(grips).entries()) {
    const lambda = curvatures(start, step);
    lambda.forEach((each, i) => {
      squares[i] = (1 - rate * each) ** 2 * squares[i] + (rate * NOISE) ** 2;
    });
    const loss = sum(squares.map((square, i) => (lambda[i] * square) / 2));
    found.push(loss > LOST ? Infinity : loss);
    if (loss > LOST) break;
  }
  return found;
}

// The same for one run, with a noise of its own.
function walk(grips, start, seed) {
  const next = uniform(seed);
  const weights = [...START];
  return rates(grips).map((rate, step) => {
    const lambda = curvatures(start, step);
    lambda.forEach((each, i) => {
      weights[i] -= rate * (each * weights[i] + NOISE * normal(next));
    });
    return sum(weights.map((weight, i) => (lambda[i] * weight ** 2) / 2));
  });
}

const ending = (grips, start) => losses(grips, start).at(-1);
const scaled = (shape, peak) => SHAPES[shape].map((part) => clamp(part * peak, RATES[0], 3));

const known = new Map();

// A schedule with the highest rate that ends lowest.
function tuned(shape, start) {
  const name = `${shape} ${start}`;
  if (!known.has(name)) {
    const all = RATES.map((peak) => scaled(shape, peak));
    const ends = all.map((grips) => ending(grips, start));
    known.set(name, all[ends.indexOf(Math.min(...ends))]);
  }
  return known.get(name);
}

const HALVES = ["rise", "fall"];
const ENOUGH = 1.2;

// The halves of 1cycle that end about as low alone as both do together; "both" where none does.
function answer({ start }) {
  const whole = ending(tuned("cycle", start), start);
  const alone = HALVES.filter((half) => ending(tuned(half, start), start) <= ENOUGH * whole);
  return alone.length ? alone : ["both"];
}

// What `render` starts from. `own`: the grips once the reader has moved one.
const OPENS = { shape: "constant", start: "calm", own: null };
const gripsOf = ({ shape, start, own }) => (shape === "own" && own) || tuned(shape, start);

// ---------------------------------------------------------------- drawing

const NAMES = {
  constant: "constant",
  linear: "linear",
  cosine: "cosine",
  cycle: "1cycle",
  wsd: "WSD",
  cyclic: "cyclic",
  rise: "1cycle, only its rise",
  fall: "1cycle, only its fall",
  own: "yours",
};
const [LEAST, MOST] = [0.003, 30]; // of the losses that are drawn
const RUNS = 3; // with noise
const across = steps(0, STEPS - 1, 1);
const atGrip = (i) => (i * (STEPS - 1)) / (GRIPS - 1);
const short = (value) => (value === Infinity ? "lost" : String(Number(value.toPrecision(3))));

function places({ width, narrow }) {
  const right = narrow ? width - 10 : Math.round(width * 0.68);
  return {
    rate: { left: 46, right, top: 24, bottom: 164 },
    loss: { left: 46, right, top: 206, bottom: 356 },
    list: { left: narrow ? 10 : right + 36, right: width - 8, top: narrow ? 414 : 24 },
  };
}

// A grip at the edge hides no number.
const stepsOf = ({ left, right }) => linear(0, STEPS - 1, left + 12, right - 12);
const ratesOf = ({ top, bottom }) => logarithmic(RATES[0], 3, bottom, top);

function drawRate(pen, area, grips, start) {
  const [x, y] = [stepsOf(area), ratesOf(area)];
  pen.text(area.left, area.top - 10, "learning rate of each step", "small faint");
  rows(pen, [0.01, 0.1, 1], y, area.left, area.right);
  const limit = across.map((step) => [x(step), y(2 / curvatures(start, step)[0])]);
  pen.path(limit, "line red thin dash");
  pen.text(area.right, y(2) - 5, "above this the loss grows", "small red end");
  pen.path(rates(grips).map((rate, step) => [x(step), y(rate)]), "line blue");
}

function drawLoss(pen, area, grips, start) {
  const [x, y] = [stepsOf(area), logarithmic(LEAST, MOST, area.bottom, area.top)];
  const line = (values) => values.map((loss, i) => [x(i), y(clamp(loss, LEAST, MOST))]);
  pen.text(area.left, area.top - 10, "loss: mean, and three runs", "small faint");
  rows(pen, [0.01, 0.1, 1, 10], y, area.left, area.right);
  columns(pen, [0, 50, 100, 150], x, area.bottom);
  pen.text(area.right, area.bottom + 17, "steps", "small faint end");
  const found = losses(grips, start);
  for (let i = 0; i < RUNS; i++) {
    pen.path(line(walk(grips, start, i).slice(0, found.length)), "line sky thin half");
  }
  pen.path(line(found), "line blue thick");
  const [[px, py], lost] = [line(found).at(-1), found.at(-1) === Infinity];
  pen.dot(px, py, 6, `fill ${lost ? "red" : "blue"}`);
  if (lost) pen.text(px + 12, py + 5, `lost at step ${found.length}`, "bold red");
}

// What was tried on this start, the lowest end first.
function drawList(pen, { left, right, top }, tried, shown) {
  pen.text(left, top - 10, "final loss, lowest first", "small faint");
  const most = 0.1; // a longer bar is cut
  [...tried].sort(([, one], [, other]) => one - other).forEach(([shape, end], i) => {
    const y = top + 30 * i;
    const look = shape === shown ? "bold" : "";
    pen.text(left, y + 11, `${i || end === Infinity ? "" : "★ "}${NAMES[shape]}`, `small ${look}`);
    pen.text(right, y + 11, short(end), `small end ${look}`);
    const width = (Math.min(end, most) / most) * (right - left);
    pen.rect(left, y + 16, width, 5, `fill ${shape === "own" ? "orange" : "blue"}`, 2);
  });
}

function inWords({ shape, start }, end, grips) {
  const whole = ending(tuned("cycle", start), start);
  if (end === Infinity) return "Lost: the steep start throws it out. Begin with a lower rate.";
  if (HALVES.includes(shape)) {
    const [rise, fall] = HALVES.map((half) => short(ending(tuned(half, start), start)));
    return `The rise alone ends at ${rise}, the fall alone at ${fall}, both at ${short(whole)}.`;
  }
  if (shape !== "own") {
    return `${NAMES[shape]}, up to a rate of ${short(Math.max(...grips))}, ends at ${short(end)}.`;
  }
  const least = Math.min(...Object.keys(SHAPES).map((each) => ending(tuned(each, start), start)));
  const words = `Yours ends at ${short(end)}.`;
  if (end < least) return `${words} ★ You beat every schedule of the menu.`;
  if (end < whole) return `${words} You beat 1cycle. To beat: ${short(least)}.`;
  return `${words} To beat: 1cycle, ${short(whole)}.`;
}

function render({ el }) {
  const state = { ...OPENS };
  // What the controls show follows from the schedule.
  for (let i = 0; i < GRIPS; i++) {
    Object.defineProperty(state, `grip${i}`, { get: () => gripsOf(state)[i] });
  }
  Object.defineProperty(state, "peak", { get: () => Math.max(...gripsOf(state)) });
  const tried = { calm: new Map(), steep: new Map() };
  const puts = [];
  const frame = new Frame(el, {
    name: "bend-the-rate",
    ask: "Which half of 1cycle does the work, its rise or its fall?",
    task: "1cycle raises the rate, then lowers it. Choose a schedule, or bend one: drag its grips.",
    caption:
      "Simulated: SGD with noisy gradients on two weights, one with a steep loss, one 50 times " +
      "flatter. A steep start is 8 times steeper for 20 steps; above a loss of 100 all is lost. " +
      "The thick line is the exact mean over all noises. WSD is warmup, stable, decay. Each " +
      "schedule of the menu has the highest rate that ends lowest. Nothing is measured here; the " +
      "panel below trains a real network.",
    state,
    height: (width) => (width < NARROW ? 450 + 30 * tried[state.start].size : 380),
    draw: (pen, now, size) => {
      const [area, grips] = [places(size), gripsOf(now)];
      const end = ending(grips, now.start);
      const here = tried[now.start];
      here.set(now.shape, Math.min(end, here.get(now.shape) ?? end));
      drawRate(pen, area.rate, grips, now.start);
      drawLoss(pen, area.loss, grips, now.start);
      drawList(pen, area.list, here, now.shape);
      const [x, y] = [stepsOf(area.rate), ratesOf(area.rate)];
      puts.forEach((put, i) => put(x(atGrip(i)), y(grips[i])));
      return inWords(now, end, grips);
    },
  });
  frame.bet({
    options: [["rise", "the rise"], ["fall", "the fall"], ["both", "only both together"]],
    answer,
    play: (value) => ({ shape: value === "both" ? "cycle" : value }),
  });
  frame.menu({ name: "shape", label: "schedule", options: Object.entries(NAMES) });
  const bend = (own) => frame.set({ shape: "own", own });
  frame.slider({
    name: "peak",
    label: "highest rate",
    values: RATES,
    change: (peak) =>
      bend(gripsOf(state).map((rate) => clamp((rate * peak) / state.peak, RATES[0], 3))),
  });
  frame.choice({ name: "start", label: "start", options: [["calm", "calm"], ["steep", "steep"]] });
  for (let i = 0; i < GRIPS; i++) {
    puts[i] = frame.grip({
      name: `grip${i}`,
      label: `learning rate at step ${Math.round(atGrip(i))}`,
      values: RATES,
      from: (x, y) => ratesOf(places(frame.size()).rate).back(y),
      change: (rate) => bend(gripsOf(state).map((other, at) => (at === i ? rate : other))),
    });
  }
  return () => frame.close();
}

export { RATES, SHAPES, OPENS, rates, losses, walk, tuned, answer };
export default { render };
