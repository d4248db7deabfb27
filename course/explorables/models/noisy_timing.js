// 00: two programs on a machine whose speed drifts, timed in two orders.

const RUN = 10; // milliseconds of program A on a calm machine
const EXPERIMENTS = 200;
const OPENS = { drift: 0.06, noise: 0.02, planted: 0, runs: 20, seed: 5 };
// Experiments of the 200 that one can bet on.
const BETS = [10, 50, 100, 150];
// A 95 % interval leaves out the true value so often, whatever the order.
const BY_CHANCE = 0.05 * EXPERIMENTS;

// Which program runs when: A A A B B B, or A B B A A B B A. `runs` of each, an even number.
function order(plan, runs) {
  if (plan === "sequence") {
    return Array.from({ length: 2 * runs }, (_, i) => (i < runs ? "A" : "B"));
  }
  return Array.from({ length: 2 * runs }, (_, i) => "ABBA"[i % 4]);
}

// Relative speed of the machine over the whole measurement, t from 0 to 1: one slow wave.
function weather(seed) {
  const next = uniform(seed);
  const [waves, phase] = [0.3 + 0.5 * next(), next()];
  return (t) => 0.5 * Math.sin(2 * Math.PI * (waves * t + phase));
}

// Times in milliseconds of all runs in this order. drift, noise, planted: fractions.
function experiment({ plan, runs, drift, noise, planted, seed }) {
  const wave = weather(seed);
  const next = uniform(seed + 1000003);
  const count = 2 * runs;
  return order(plan, runs).map((program, i) => {
    const length = program === "A" ? RUN : RUN * (1 + planted);
    const time = length * (1 + drift * wave((i + 0.5) / count)) * (1 + noise * normal(next));
    return { program, time };
  });
}

// 97.5 % quantile of Student's t, from the normal one (Abramowitz and Stegun 26.7.5).
function quantile(freedom) {
  const z = 1.959963985;
  const terms = [
    (z ** 3 + z) / 4,
    (5 * z ** 5 + 16 * z ** 3 + 3 * z) / 96,
    (3 * z ** 7 + 19 * z ** 5 + 17 * z ** 3 - 15 * z) / 384,
    (79 * z ** 9 + 776 * z ** 7 + 1482 * z ** 5 - 1920 * z ** 3 - 945 * z) / 92160,
  ];
  return z + sum(terms.map((term, i) => term / freedom ** (i + 1)));
}

const variance = (values) => {
  const middle = mean(values);
  return sum(values.map((value) => (value - middle) ** 2)) / (values.length - 1);
};

// How much longer B takes (a fraction), with the 95 % interval that a reader would compute:
// from two groups of runs, or from the differences inside each A B B A.
function verdict(plan, taken) {
  const of = (program) => taken.filter((run) => run.program === program).map((run) => run.time);
  const [a, b] = [of("A"), of("B")];
  const difference = mean(b) - mean(a);
  let half = 0;
  if (plan === "sequence") {
    const error = Math.sqrt((variance(a) + variance(b)) / a.length);
    half = quantile(2 * a.length - 2) * error;
  } else {
    const inside = Array.from({ length: taken.length / 4 }, (_, i) => {
      const [a1, b1, b2, a2] = taken.slice(4 * i, 4 * i + 4).map((run) => run.time);
      return (b1 + b2 - a1 - a2) / 2;
    });
    half = quantile(inside.length - 1) * Math.sqrt(variance(inside) / inside.length);
  }
  const [low, high] = [(difference - half) / mean(a), (difference + half) / mean(a)];
  const claim = low > 0 ? "B slower" : high < 0 ? "B faster" : "no difference";
  return { difference: difference / mean(a), low, high, claim };
}

// What many experiments on as many machines claim.
function claims(settings) {
  return Array.from({ length: EXPERIMENTS }, (_, i) => {
    const seed = settings.seed + 7919 * i;
    return verdict(settings.plan, experiment({ ...settings, seed })).claim;
  });
}

// right: the claim is true, and was found; luck: it is true, and the machine alone makes it too, of
// `equal` programs; missed: a difference is there, and none is claimed.
function judge(claim, planted, equal = "no difference") {
  if (claim === "no difference") return planted ? "missed" : "none";
  if (!planted || claim !== "B slower") return "wrong";
  return claim === equal ? "luck" : "right";
}

// What becomes of many experiments, each held against the same one with equal programs.
function judgements(settings) {
  const found = claims(settings);
  const equal = settings.planted ? claims({ ...settings, planted: 0 }) : found;
  return found.map((claim, i) => judge(claim, settings.planted, equal[i]));
}

// The bets that are right: the one next to what is claimed one after the other.
function answer(state) {
  const found = judgements({ ...state, plan: "sequence", planted: 0 });
  return [BETS[nearest(BETS, found.filter((word) => word === "wrong").length)]];
}
