// 10: a tank of work between host and device. Who reads a value shuts the tap until it is dry.

const LENGTH = 160; // milliseconds
const OPENS = {
  ...{ host: 1, device: 4, every: 1, copy: 0 },
  ...{ memory: "pageable", time: LENGTH, holds: [] },
};
const QUEUE = 30; // steps in the tank, at most
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

// Spans of time, in which the host does one thing: the steps in the tank at their begin and end,
// milliseconds in which the lamp is on; when steps were poured in; how often a value was read.
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

// Milliseconds per step, once all repeats itself.
function pace(state) {
  const longest = state.host + state.device + 2 * state.copy;
  const { pours } = simulate({ ...state, holds: [] }, 100 * longest);
  return (pours[80] - pours[48]) / 32;
}

// How many times as long a step is when every step reads.
const cost = (state) => pace({ ...state, every: 1 }) / pace({ ...state, every: SELDOM });

// The times of the host at which reading in every step costs most.
function answer(state) {
  const costs = BETS.map((host) => cost({ ...state, host }));
  return BETS.filter((_, i) => costs[i] > Math.max(...costs) - 1e-6);
}

// Until the present moment: the share of time in which the lamp was on, and values read.
function score(state) {
  const { spans, reads } = simulate(state, state.time);
  return { lit: sum(spans.map(({ lit }) => lit)) / Math.max(1e-9, state.time), reads };
}

// ---------------------------------------------------------------- drawing

const [TOP, BOTTOM] = [40, 170]; // of the tank, in pixels
const STRIPS = { lamp: BOTTOM + 30, host: BOTTOM + 50 };
const HOST = {
  prepares: "fill blue soft",
  copies: "fill purple",
  waits: "fill red",
  reads: "fill red",
  full: "fill pale",
};
const LEGEND = [
  ["fill orange", "lamp on: the device works"],
  ["fill blue soft", "host prepares a step"],
  ["fill red", "host waits"],
  ["fill purple", "host copies"],
];

const place = (width) => {
  const narrow = width < NARROW;
  return narrow ? { tank: 44, left: 96, right: width - 8 } : { tank: 110, left: 190, right: width - 16 };
};

// The tank at the present moment, the tap above it, the lamp below.
function drawTank(pen, { tank }, y, now, lit) {
  const shut = now.host === "reads" || now.host === "waits";
  pen.rect(16, TOP, tank, BOTTOM - TOP, "fill pale", 4);
  pen.rect(16, y(now.to), tank, BOTTOM - y(now.to), "fill blue", 2);
  pen.rect(16 + tank / 2 - 9, TOP - 16, 18, 12, shut ? "fill red" : "fill blue");
  pen.text(16, TOP - 24, shut ? "tap shut" : "host", "small faint");
  const on = now.to > 0;
  pen.dot(16 + tank / 2, STRIPS.lamp + 10, 13, on ? "fill orange" : "hollow grey");
  pen.text(16 + tank / 2, STRIPS.lamp + 40, `on ${Math.round(100 * lit)} %`, "middle bold");
}

// Level, lamp and host over time.
function drawTime(pen, spans, { left, right }, y) {
  const x = linear(0, LENGTH, left, right);
  rows(pen, ticks(0, y.back(TOP), 4), y, left, right);
  pen.text(left, TOP - 24, "steps in the tank, over time in ms", "small faint");
  const points = spans.flatMap(({ begin, end, from, to }) => [
    [x(begin), y(from)],
    [x(end), y(to)],
  ]);
  pen.path(points, "line blue");
  for (const { host, begin, end, lit } of spans) {
    const bar = (top, until, look) => pen.rect(x(begin), top, x(until) - x(begin), 12, look);
    bar(STRIPS.lamp, end, "fill pale");
    if (lit) bar(STRIPS.lamp, begin + lit, "fill orange");
    bar(STRIPS.host, end, HOST[host]);
  }
  columns(pen, ticks(0, LENGTH, 4), x, STRIPS.host + 14);
}

function inWords(state) {
  const { reads } = score(state);
  const by = state.holds.length ? ` ${reads} values were read, some of them by you.` : "";
  return (
    `A step takes ${pace(state).toFixed(1)} ms. Read every step, it is ` +
    `${cost(state).toFixed(2)} times as long as read every ${SELDOM}.${by}`
  );
}

// Space, or the button, is a read for as long as it is held, while the picture plays.
function holding(frame, state) {
  const [button, play] = ["item", "play"].map((name) => frame.root.querySelector(`.xp-${name}`));
  let held = false;
  play.addEventListener("click", () => state.time === LENGTH && frame.set({ holds: [] }));
  const press = () => {
    if (held) return;
    if (!frame.playing) play.click();
    held = true;
    const time = state.time === LENGTH ? 0 : state.time;
    const earlier = state.holds.filter(([begin]) => begin < time);
    frame.set({ time, holds: [...earlier, [time, Infinity]] });
  };
  const release = () => {
    if (!held) return;
    held = false;
    const [begin] = state.holds[state.holds.length - 1];
    frame.set({ holds: [...state.holds.slice(0, -1), [begin, state.time]] });
  };
  const ours = (event) => event.key === " " && (frame.playing || held || event.target === button);
  frame.root.addEventListener("keydown", (event) => {
    if (ours(event)) [event.preventDefault(), press()];
  });
  frame.root.addEventListener("keyup", (event) => {
    if (ours(event)) [event.preventDefault(), release()];
  });
  button.addEventListener("pointerdown", press);
  ["pointerup", "pointerleave", "blur"].forEach((name) => button.addEventListener(name, release));
}

function render({ el }) {
  const state = { ...OPENS };
  const frame = new Frame(el, {
    name: "keep-the-tank-full",
    ask: "At which host time does a read in every step cost most?",
    task: "Press Play. Then read seldom, and hold Space: you are .item(). Keep the lamp on.",
    caption:
      "Simulated: the host pours one step into the tank, the device drains it; a read, or a copy " +
      "that blocks, shuts the tap until the tank is dry. A pinned copy takes half as long; " +
      "non_blocking, the device does it, in its queue. The tank holds 30 steps. Nothing here is " +
      "measured.",
    state,
    height: (width) => STRIPS.host + (width < NARROW ? 122 : 66),
    draw: (pen, now, { width }) => {
      const { spans } = simulate(now, Math.max(0.5, now.time));
      const most = Math.max(2, ...spans.map(({ from }) => from));
      const [at, y] = [place(width), linear(0, 1.1 * most, BOTTOM, TOP)];
      drawTank(pen, at, y, spans[spans.length - 1], score(now).lit);
      drawTime(pen, spans, at, y);
      legend(pen, LEGEND, { left: at.left, right: at.right, top: STRIPS.host + 42 });
      return inWords(now);
    },
  });
  const text = (value) => `${value} ms`;
  frame.bet({
    name: "host",
    options: BETS.map((host) => [host, text(host)]),
    answer,
    play: (host) => ({ host }),
  });
  frame.slider({ name: "host", label: "host per step", values: TIMES, text });
  frame.slider({ name: "device", label: "device per step", values: TIMES, text });
  const often = (every) => (every === 1 ? "every step" : `every ${every} steps`);
  frame.slider({ name: "every", label: "read", values: EVERY, text: often });
  frame.slider({ name: "copy", label: "a copy takes", values: steps(0, 6, 1), text });
  const memories = Object.entries(MEMORIES);
  frame.menu({ name: "memory", label: "memory of the copy", options: memories });
  frame.player({ name: "time", values: steps(0, LENGTH, 0.5), seconds: 10 });
  frame.button({ name: "item", text: () => "hold: .item()", press: () => {} });
  holding(frame, state);
  return () => frame.close();
}

export { answer, copying, cost, pace, score, simulate, BETS, EVERY, OPENS, TIMES };
export default { render };
