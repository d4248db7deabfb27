// 14: when gradients are ready, how long an exchange takes, and the best of all cuts.

// Of each layer, the first one first: MiB of gradients, milliseconds of backward for 32 images.
const LAYERS = [
  ...[[0.1, 4], [0.4, 3.5], [1, 3], [2, 3], [3, 2.5], [4, 2.5]],
  ...[[6, 2], [9, 2], [12, 1.5], [15, 1.5], [30, 1.5], [60, 1.5]],
];
// In the order in which the backward pass comes to them.
const ORDER = [...LAYERS].reverse();
const MACHINES = [2, 4, 8, 16, 32, 64];
const IMAGES = [4, 8, 16, 32, 64, 128, 256];
// Bytes per second, and seconds that a message takes however small it is.
const LINKS = {
  nvlink: { text: "NVLink, 450 GB/s", bytes: 450e9, message: 5e-6 },
  pcie: { text: "PCIe 5, 55 GB/s", bytes: 55e9, message: 10e-6 },
  ethernet: { text: "Ethernet, 12 GB/s", bytes: 12e9, message: 20e-6 },
};
const OPENS = {
  ...{ machines: 32, images: 32, link: "ethernet", cuts: [], time: 1 },
  ...{ known: [], given: [] },
};
const [BYTES, DEFAULT] = [2 ** 20, 25]; // of a MiB; MiB of a bucket in PyTorch

// A cut is the number of gradients before it, in the order of the backward pass.
const EVERY_LAYER = steps(1, ORDER.length - 1, 1);

// Cut once a bucket has so many MiB.
function cutEvery(size) {
  const cuts = [];
  let inside = 0;
  ORDER.slice(0, -1).forEach(([mib], i) => {
    inside += mib;
    if (inside < size) return;
    cuts.push(i + 1);
    inside = 0;
  });
  return cuts;
}

const PLANS = {
  none: { text: "nowhere: one bucket", row: "one bucket", cuts: [] },
  layer: { text: "after each layer", row: "one per layer", cuts: EVERY_LAYER },
  size: { text: "every 25 MiB", row: "every 25 MiB", cuts: cutEvery(DEFAULT) },
};

// Milliseconds after the backward pass began, at which each gradient is ready.
function readyTimes({ images }) {
  let time = 0;
  return ORDER.map(([, each]) => (time += (each * images) / 32));
}

// A backward pass takes about twice as long as the forward pass before it.
const forwardTime = (state) => readyTimes(state)[ORDER.length - 1] / 2;

// Milliseconds of an all-reduce in a ring: each machine sends 2 (p - 1) pieces, each 1/p of it.
function exchangeTime({ machines, link }, mib) {
  const { bytes, message } = LINKS[link];
  const count = 2 * (machines - 1);
  return 1000 * count * ((mib * BYTES) / machines / bytes + message);
}

// The buckets: their layers from `first` to `end`, when all is ready, and when the link has them.
function bucketsOf(state, cuts) {
  const ready = readyTimes(state);
  const bounds = [0, ...cuts, ORDER.length];
  let free = 0;
  return bounds.slice(1).map((end, i) => {
    const first = bounds[i];
    const mib = sum(ORDER.slice(first, end).map(([size]) => size));
    const begin = Math.max(free, ready[end - 1]);
    free = begin + exchangeTime(state, mib);
    return { first, end, mib, ready: ready[end - 1], begin, done: free };
  });
}

// Milliseconds until the last gradient is everywhere.
function endOf(state, cuts) {
  const buckets = bucketsOf(state, cuts);
  return buckets[buckets.length - 1].done;
}

// As shown: to a tenth of a millisecond.
const shown = (time) => Math.round(10 * time) / 10;

// One machine does the same batch one share after the other, and exchanges nothing.
function worth(state, cuts) {
  const forward = forwardTime(state);
  const alone = state.machines * (forward + readyTimes(state)[ORDER.length - 1]);
  return alone / (forward + endOf(state, cuts));
}

const settingOf = ({ machines, images, link }) => `${machines} ${images} ${link}`;
const solved = {};

// The cuts that end first of all 2,048; of equal ones the fewest.
function bestCuts(state) {
  return (solved[settingOf(state)] ??= searched(state));
}

function searched(state) {
  let [best, least] = [[], endOf(state, [])];
  for (let number = 1; number < 2 ** EVERY_LAYER.length; number++) {
    const cuts = EVERY_LAYER.filter((place) => number & (1 << (place - 1)));
    const end = endOf(state, cuts);
    const [now, before] = [shown(end), shown(least)];
    if (now < before || (now === before && cuts.length < best.length)) [best, least] = [cuts, end];
  }
  return best;
}

// The plans that end first.
function answer(state) {
  const names = Object.keys(PLANS);
  const ends = names.map((name) => shown(endOf(state, PLANS[name].cuts)));
  return names.filter((_, i) => ends[i] === Math.min(...ends));
}

const goals = (state) => ({
  none: shown(endOf(state, PLANS.none.cuts)),
  layer: shown(endOf(state, PLANS.layer.cuts)),
  size: shown(endOf(state, PLANS.size.cuts)),
  best: shown(endOf(state, bestCuts(state))),
});

// Bronze beats two of the three plans, silver all of them.
function medal(state, cuts) {
  const end = shown(endOf(state, cuts));
  const [first, second] = rivals(state);
  if (end <= goals(state).best) return "gold";
  if (end < first.end) return "silver";
  return end < second.end ? "bronze" : "";
}

// The three plans, the fastest one first.
function rivals(state) {
  const ends = goals(state);
  const all = Object.entries(PLANS).map(([name, { row }]) => ({ row, end: ends[name] }));
  return all.sort((a, b) => a.end - b.end);
}

// ---------------------------------------------------------------- in words

const ms = (time) => `${shown(time).toFixed(1)} ms`;

function inWords(state, cuts) {
  const last = readyTimes(state)[ORDER.length - 1];
  const end = endOf(state, cuts);
  const machines = `${state.machines} machines do the work of ${worth(state, cuts).toFixed(1)}`;
  const waits = `Exchanged after ${ms(end)}, ${ms(end - last)} behind the backward pass`;
  return `${waits}: ${machines}. ${game(state, cuts)}`;
}

function game(state, cuts) {
  const prize = medal(state, cuts);
  const [first, second] = rivals(state);
  if (prize === "gold") {
    const won = state.given.includes(settingOf(state)) ? "This is the best" : "★ Gold";
    return `${won}: none of all 2,048 ways ends earlier. ${limit(state)}`.trim();
  }
  if (prize === "silver") return "Silver. Is it the best of all 2,048 ways?";
  const [aim, metal, won] = prize ? [first, "silver", "Bronze. "] : [second, "bronze", ""];
  const beat = `To beat for ${metal}: ${ms(aim.end)}, ${aim.row}.`;
  return `${won}${advice(state, cuts)} ${beat}`;
}

// What even the best cuts cannot hide.
function limit(state) {
  const last = readyTimes(state)[ORDER.length - 1];
  const whole = endOf(state, []) - last;
  if (goals(state).best - last < 0.3 * whole) return "";
  if (whole > last) {
    return `The link alone needs ${ms(whole)}, the backward pass ${ms(last)}: it cannot hide it.`;
  }
  return "What is left is the last bucket: behind the backward pass nothing hides it.";
}

// What holds this plan up.
function advice(state, cuts) {
  const buckets = bucketsOf(state, cuts);
  const { mib, begin, ready, done } = buckets[buckets.length - 1];
  const messages = exchangeTime(state, 0);
  if (begin - ready > 0.5 * (done - ready) && buckets.length * messages > 0.3 * (done - ready)) {
    return `Each bucket costs ${ms(messages)} of messages, however small it is: make fewer.`;
  }
  if (buckets.length === 1) return "The link idles until all gradients are ready: cut.";
  if (begin > ready && buckets[0].end === 1) {
    return `The link is busy from the first gradient on. Each bucket costs ${ms(messages)}: make fewer.`;
  }
  if (begin > ready) return "The last bucket finds the link busy: the first must leave earlier.";
  return `The last bucket has ${mib.toFixed(1)} MiB, and nothing hides it: make it smaller.`;
}
