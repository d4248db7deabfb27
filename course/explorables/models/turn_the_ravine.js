// 08: three optimizers in a ravine that can be turned, each at its best learning rate.

const STEPS = 300; // whoever needs more never arrives
const START = [-8, 2.5]; // along the ravine and across it
const GOAL = 0.5; // distance from the lowest point that counts as there
const LOST = 1e4; // from such a distance nobody comes back
const BETA = 0.9; // of momentum and of Adam
const SQUARES = 0.999; // of Adam's mean of squares
const EPSILON = 1e-8;
const RULES = ["sgd", "momentum", "adam"];
// The rates that are tried.
const RATES = Array.from({ length: 161 }, (_, i) => 10 ** (i / 16 - 6));

const OPENS = { angle: 0, steep: 300, size: 1, rate: 0, clock: STEPS };

// From places along and across the ravine to the two weights.
function turned([along, across], angle) {
  const [c, s] = [Math.cos((angle * Math.PI) / 180), Math.sin((angle * Math.PI) / 180)];
  return [c * along - s * across, s * along + c * across];
}

// The gradient of size * (along^2 / steep + across^2) / 2.
function gradient(weights, { angle, steep, size }) {
  const [along, across] = turned(weights, -angle);
  return turned([(size * along) / steep, size * across], angle);
}

const UPDATES = {
  sgd: (g) => g,
  momentum: (g, kept, i) => (kept.m[i] = BETA * kept.m[i] + g),
  adam: (g, kept, i, step) => {
    kept.m[i] = BETA * kept.m[i] + (1 - BETA) * g;
    kept.v[i] = SQUARES * kept.v[i] + (1 - SQUARES) * g * g;
    const root = Math.sqrt(kept.v[i] / (1 - SQUARES ** step));
    return kept.m[i] / (1 - BETA ** step) / (root + EPSILON);
  },
};

// Both weights before the first step and after each one, until all is lost.
function walk(rule, rate, state) {
  const kept = { m: [0, 0], v: [0, 0] };
  let weights = turned(START, state.angle);
  const places = [weights];
  for (let step = 1; step <= STEPS && Math.hypot(...weights) < LOST; step++) {
    const slope = gradient(weights, state);
    weights = weights.map((weight, i) => weight - rate * UPDATES[rule](slope[i], kept, i, step));
    places.push(weights);
  }
  return places;
}

// Steps until a walk has reached the goal for good; Infinity where it never does.
function arrival(places) {
  const outside = places.findLastIndex((weights) => Math.hypot(...weights) > GOAL);
  return outside === places.length - 1 ? Infinity : outside + 1;
}

const known = new Map();

// The rate that arrives first; where none does, the one that ends nearest.
function tuned(rule, state) {
  const name = [rule, state.angle, state.steep, state.size].join();
  if (!known.has(name)) {
    const found = RATES.map((rate) => {
      const places = walk(rule, rate, state);
      return { rate, arrives: arrival(places), away: Math.hypot(...places.at(-1)) };
    });
    const better = (a, b) => (a.arrives === b.arrives ? a.away < b.away : a.arrives < b.arrives);
    known.set(name, found.reduce((best, each) => (better(each, best) ? each : best)).rate);
  }
  return known.get(name);
}

// A rate of 0: each rule has its best one.
const rateOf = (rule, state) => state.rate || tuned(rule, state);
const needed = (rule, state) => arrival(walk(rule, rateOf(rule, state), state));

const MORE = 1.2;

// Who needs clearly more steps when the ravine lies aslant.
function answer(state) {
  const slower = RULES.filter(
    (rule) => needed(rule, { ...state, angle: 45 }) > MORE * needed(rule, { ...state, angle: 0 }),
  );
  return slower.length ? slower : ["none"];
}
