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

// What `render` starts from. `own`: the grips once the reader has moved one. `compared`: the
// schedule and start of a bet; `part`: how much of its curves is drawn.
const OPENS = { shape: "constant", start: "calm", own: null, compared: "", part: 1 };
const compares = ({ shape, start, compared }) => compared === `${shape} ${start}`;
// Before the first move yours is the constant rate.
const gripsOf = ({ shape, start, own }) =>
  shape === "own" ? own || tuned("constant", start) : tuned(shape, start);

// Of the runs that are drawn: one that ends low, one near the mean, one high.
const SEEDS = [4, 13, 20];
const LOOKS = 10; // steps that a drawn loss of a run is the mean of

// Each value as the mean of the latest ones.
const smooth = (values) =>
  values.map((_, i) => mean(values.slice(Math.max(0, i + 1 - LOOKS), i + 1)));

// What is said under the picture.

const NAMES = {
  constant: "constant",
  linear: "linear: only falls",
  cosine: "cosine",
  cycle: "1cycle",
  wsd: "WSD: warmup, stable, decay",
  cyclic: "cyclic",
  rise: "rises, then stays up",
  fall: "stays up, then falls",
  own: "yours",
};

const short = (value) => (value === Infinity ? "lost" : String(Number(value.toPrecision(3))));

function inWords(now, end, grips) {
  const { shape, start, part } = now;
  if (compares(now) && part < 1) return "The rise alone, the fall alone, or both: which ends lowest?";
  const whole = ending(tuned("cycle", start), start);
  if (end === Infinity) return "Lost: the steep start throws it out. Lower its first rates.";
  if (HALVES.includes(shape) || compares(now)) {
    const [rise, fall] = HALVES.map((half) => short(ending(tuned(half, start), start)));
    const ends = `The rise alone ends at ${rise}, the fall alone at ${fall}, both at ${short(whole)}.`;
    return start === "calm" ? `${ends} Now choose a steep start: bet again.` : ends;
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
