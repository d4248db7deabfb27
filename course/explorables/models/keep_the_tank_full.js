// 10: a tank of work between host and device. Who reads a value shuts the tap until it is dry.

const LENGTH = 100; // milliseconds
const OPENS = {
  ...{ host: 1, device: 4, every: 1, copy: 0 },
  ...{ memory: "pageable", time: LENGTH, holds: [] },
};
const QUEUE = 30; // updates in the tank, at most
const TIMES = [0.5, 1, 2, 3, 4, 5, 6, 8, 10]; // milliseconds
const EVERY = [1, 2, 4, 8, 16];
const SELDOM = EVERY[EVERY.length - 1];
const BETS = [1, 2, 4, 8];
const MEMORIES = {
  pageable: "pageable",
  pinned: "pinned",
  non_blocking: "pinned, non_blocking",
};

// Milliseconds for which a copy holds the host, and for which the device copies in its queue.
function copying({ copy, memory }) {
  if (memory === "pageable") return { held: copy, queued: 0 };
  return memory === "pinned" ? { held: copy / 2, queued: 0 } : { held: 0, queued: copy / 2 };
}

const works = ({ host }) => host === "prepares" || host === "copies";

// Milliseconds until the host can go on.
function lasts({ host, left, work }, each) {
  if (works({ host })) return left;
  return host === "full" ? Math.max(0, work - (QUEUE - 1) * each) : work;
}

// What the host does next. A blocking copy waits for all that was queued before it.
function proceed(world, state, each, pressed) {
  const { held } = copying(state);
  const { host } = world;
  if (host === "prepares") world.host = held ? "waits" : "full";
  else if (host === "waits") Object.assign(world, { host: "copies", left: held });
  else if (host === "copies") world.host = "full";
  else if (host === "reads") Object.assign(world, { host: "prepares", reads: world.reads + 1 });
  else {
    world.work += each;
    world.pours.push(world.time);
    const due = world.pours.length % state.every === 0 || pressed;
    Object.assign(world, { host: due ? "reads" : "prepares", left: state.host });
  }
}

// Spans of time, in which the host does one thing: the updates in the tank at their begin and end,
// milliseconds in which the lamp is on; when updates were poured in; how often a value was read.
// `holds`: pairs of milliseconds between which the reader holds Space.
function simulate(state, length = LENGTH) {
  const each = state.device + copying(state).queued;
  const world = { time: 0, work: 0, host: "prepares", left: state.host, pours: [], reads: 0 };
  const spans = [];
  const presses = state.holds.map(([begin]) => begin);
  while (world.time < length) {
    const { time, work, host } = world;
    const press = presses.find((begin) => begin > time) ?? length;
    const rest = lasts(world, each);
    const span = Math.min(rest, press - time, length - time);
    world.work = Math.max(0, work - span);
    world.time = span === press - time ? press : time + span;
    if (works(world)) world.left -= span;
    const [from, to] = [work / each, world.work / each];
    if (span) spans.push({ host, begin: time, end: world.time, from, to, lit: Math.min(span, work) });
    const held = ([begin, end]) => begin <= world.time && world.time < end;
    if (span === rest) proceed(world, state, each, state.holds.some(held));
    else if (host === "prepares") world.host = "reads";
  }
  return { spans, pours: world.pours, reads: world.reads };
}

// Milliseconds per update, once all repeats itself.
function pace(state) {
  const longest = state.host + state.device + 2 * state.copy;
  const { pours } = simulate({ ...state, holds: [] }, 100 * longest);
  return (pours[80] - pours[48]) / 32;
}

// How many times as long an update takes with a read after each.
const cost = (state) => pace({ ...state, every: 1 }) / pace({ ...state, every: SELDOM });

// One update in milliseconds: of the host, of a copy that blocks, of the device; how long it takes
// when the host reads after each, and after few.
function parts(state) {
  const { held, queued } = copying(state);
  const [each, seldom] = [1, SELDOM].map((every) => pace({ ...state, every }));
  return { host: state.host, held, device: state.device + queued, each, seldom };
}

// The times of the host at which reading after every update costs most.
function answer(state) {
  const costs = BETS.map((host) => cost({ ...state, host }));
  return BETS.filter((_, i) => costs[i] > Math.max(...costs) - 1e-6);
}

// Until the present moment: the share of time in which the lamp was on, and values read.
function score(state) {
  const { spans, reads } = simulate(state, state.time);
  return { lit: sum(spans.map(({ lit }) => lit)) / Math.max(1e-9, state.time), reads };
}
