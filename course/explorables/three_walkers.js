// 02: three walkers to one goal, each step made of 1, some or all rows, by the clock.

const ROWS = 1500;
// Milliseconds of a step: fixed, and for each row. Fitted to a recorded run on two cores.
const READERS = { memory: { fixed: 0.13, row: 0.00004 }, loader: { fixed: 0.18, row: 0.0027 } };
// Steps that no batch is too large to need, and the batch at which noise doubles them. Fitted, too.
const [LEAST, NOISE] = [4, 240];
const START = [-3.4, 1.7];
const RING = 0.35; // distance along the valley that counts as at the goal
const GOAL = RING ** 2 / 2; // the loss there
const NEAREST = 1.02 * RING; // before the last step
const STEEP = 3; // curvature across the valley; along it, 1
const WANDER = 0.8; // of a walker with one row
const [SOONEST, LATEST, TICKS] = [0.1, 200, 120]; // the clock, in milliseconds
const OPENS = { reader: "memory", rows: 100, clock: 0, seed: 2 };
const WHO = ["one", "some", "all"];

const stepsOf = (rows) => Math.ceil(LEAST * (1 + NOISE / rows));
const stepTime = (rows, reader) => READERS[reader].fixed + READERS[reader].row * rows;
const arrival = (rows, reader) => stepsOf(rows) * stepTime(rows, reader);
const batches = (state) => [1, state.rows, ROWS];
const clockTime = (tick) => SOONEST * (LATEST / SOONEST) ** (tick / TICKS);
const loss = ([x, y]) => (x ** 2 + STEEP * y ** 2) / 2;

// Who arrives first.
function answer(state) {
  const times = batches(state).map((rows) => arrival(rows, state.reader));
  const least = Math.min(...times);
  return WHO.filter((_, i) => times[i] === least);
}

// Places before each step, and at the goal: down the valley, thrown about by the noise of its rows.
function path(rows, seed) {
  const next = uniform(seed + rows);
  const last = stepsOf(rows);
  const scatter = WANDER * Math.sqrt((ROWS - rows) / (ROWS - 1) / rows);
  const rate = Math.log(-START[0] / (0.95 * RING));
  let noise = [0, 0];
  return Array.from({ length: last + 1 }, (_, step) => {
    const part = step / last;
    if (step) noise = noise.map((value) => 0.6 * value + 0.8 * scatter * normal(next));
    const fall = [Math.exp(-rate * part), Math.exp(-STEEP * rate * part)];
    const thrown = Math.sqrt(part * (1 - part));
    const there = START.map((place, i) => place * fall[i] + noise[i] * thrown);
    const away = Math.sqrt(2 * loss(there));
    // Who comes too near before the end is thrown out again, as far as they were in.
    const out = away < NEAREST ? Math.min(NEAREST / away, 3) * (NEAREST / away) : 1;
    const moved = step < last ? out : Math.min(1, (0.95 * RING) / away);
    return there.map((place) => place * moved);
  });
}

// Steps that are done at this time, of those that are needed.
function done(rows, reader, time) {
  return Math.min(stepsOf(rows), Math.floor(time / stepTime(rows, reader) + 1e-9));
}

// Whether a larger batch on the slider arrives sooner (1), a smaller one (-1), or none (0).
function better(state) {
  const times = SIZES.map((rows) => arrival(rows, state.reader));
  const best = SIZES[times.indexOf(Math.min(...times))];
  return arrival(best, state.reader) < arrival(state.rows, state.reader)
    ? Math.sign(best - state.rows)
    : 0;
}

// ---------------------------------------------------------------- drawing

const SIZES = [2, 5, 10, 20, 50, 100, 120, 200, 300, 500, 1000];
const [TAIL, FAINT] = [12, 200]; // latest steps of a noisy path that are drawn: strong, and at all
// All rows are the baseline, as in the panel.
const HUES = ["purple", "blue", "red"];
const title = (rows) =>
  rows === 1 ? "1 row" : `${rows === ROWS ? "all " : ""}${rows.toLocaleString("en")} rows`;
const inTime = (time) => `${Number(time.toPrecision(2))} ms`;

// The valley from above: lines of equal loss, the goal, and where each walker has been.
function drawMap(pen, walks, { left, right, top, bottom }) {
  const scale = Math.min((right - left) / 8.4, (bottom - top) / 4.6);
  const x = (place) => left + 4.6 * scale + place * scale;
  const y = (place) => (top + bottom) / 2 - place * scale;
  for (const level of [7.5, 5, 3, 1.5, 0.5, GOAL]) {
    const across = Math.sqrt(2 * level);
    const turn = steps(0, 2 * Math.PI, Math.PI / 36).map((angle) => [
      x(across * Math.cos(angle)),
      clamp(y((across / Math.sqrt(STEEP)) * Math.sin(angle)), top, bottom),
    ]);
    pen.path(turn, level === GOAL ? "fill pale" : "line hair");
    if (level === GOAL) pen.path(turn, "line green");
  }
  pen.text(x(0), y(0) + RING * scale + 14, "goal", "small middle faint");
  walks.forEach(({ places, now, last }, i) => {
    const points = places.slice(0, now + 1).map(([a, b]) => [x(a), y(b)]);
    const noisy = last > 2 * TAIL;
    // The noisy one would bury the others: only its latest steps are strong.
    if (noisy) pen.path(points.slice(-FAINT), `line thin ${HUES[i]} half`);
    pen.path(noisy ? points.slice(-TAIL) : points, `line ${HUES[i]}`);
    // Where all three stand, each is seen around the next.
    pen.dot(...points[now], 10 - 3 * i, `fill ${HUES[i]}`);
  });
}

// The loss of each by the clock; the rest is the reader's to find out.
function drawLosses(pen, walks, time, { left, right, top, bottom }, revealed) {
  const x = logarithmic(SOONEST, LATEST, left, right);
  const y = logarithmic(0.003, 20, bottom, top);
  pen.text(left, top - 10, "loss, minus the least possible", "small faint");
  rows(pen, [0.01, 0.1, 1, 10], y, left, right);
  columns(pen, [0.1, 1, 10, 100], x, bottom);
  pen.line(left, y(GOAL), right, y(GOAL), "green dash");
  pen.text(left + 6, y(GOAL) - 5, "goal", "small bold green");
  pen.text(right, bottom + 33, "milliseconds", "small faint end");
  if (!revealed) pen.text((left + right) / 2, top + 40, "? who is first ?", "bold middle faint");
  const ends = [];
  walks.forEach(({ places, now, pace, last }, i) => {
    const at = (step) => [x(Math.max(SOONEST, step * pace)), y(Math.max(0.01, loss(places[step])))];
    pen.path(steps(0, now, 1).map(at), `line ${HUES[i]}${last > 2 * TAIL ? " thin half" : ""}`);
    const end = at(now);
    pen.dot(...end, now === last ? 6 : 4, `fill ${HUES[i]}`);
    if (now === last) ends.push([...end, last * pace, HUES[i]]);
  });
  drawTimes(pen, ends, bottom);
  // When all have arrived it has nothing more to show.
  const walking = walks.some(({ now, last }) => now < last);
  if (time > SOONEST && walking) pen.line(x(time), top, x(time), bottom, "grey dash");
}

// When each arrived, the first highest: below the curves, each at the left of its dot.
function drawTimes(pen, ends, bottom) {
  ends.sort((a, b) => a[2] - b[2]).forEach(([across, , taken, hue], rank) => {
    const near = ends[rank + 1] && ends[rank + 1][0] - across < 64;
    pen.text(across - 10, bottom - (near ? 26 : 8), inTime(taken), `small bold ${hue} end`);
  });
}

function places({ width, narrow }) {
  if (narrow) {
    return {
      map: { left: 4, right: width - 4, top: 8, bottom: 200 },
      losses: { left: 40, right: width - 8, top: 274, bottom: 408 },
    };
  }
  const split = Math.round(width * 0.52);
  return {
    map: { left: 4, right: split, top: 8, bottom: 264 },
    losses: { left: split + 52, right: width - 8, top: 28, bottom: 250 },
  };
}

function inWords(state) {
  if (state.clock === 0) return "Each walks at its own pace. Bet, or press Play.";
  const all = batches(state);
  const time = clockTime(state.clock);
  const parts = all.map((size) => {
    const [made, need] = [done(size, state.reader, time), stepsOf(size)];
    const pace = inTime(stepTime(size, state.reader));
    if (made < need) return `${title(size)}: step ${made} of ${need}`;
    return `${title(size)}: ${need} steps of ${pace}, ${inTime(arrival(size, state.reader))}`;
  });
  if (state.clock < TICKS) return `After ${inTime(time)}: ${parts.join("; ")}.`;
  const first = title(all[WHO.indexOf(answer(state)[0])]);
  const hint = ["A smaller batch", "No other batch", "A larger batch"][better(state) + 1];
  return `First: ${first}. ${parts.join("; ")}. ${hint} would bring blue there sooner.`;
}

function render({ el }) {
  const state = { ...OPENS };
  const frame = new Frame(el, {
    name: "three-walkers",
    ask: "Which steps reach the goal first: of 1 row, of 100, or of all 1,500?",
    task:
      "Bet, and all three set out. Then let a loader read the rows one by one, and bet again; " +
      "find the best blue batch.",
    caption:
      "Simulated. Steps to the goal, 4 (1 + 240 / rows), and the milliseconds of a step are fitted " +
      "to a recorded race on two cores of an Intel Xeon. The paths are made up, in two dimensions: " +
      "down a valley, thrown about by noise that falls with the root of the rows. The clock runs " +
      "faster and faster. Nothing here is measured; the panel below trains a real model.",
    state,
    height: (width) => (width < NARROW ? 448 : 300),
    draw: (pen, now, size) => {
      const area = places(size);
      const time = now.clock ? clockTime(now.clock) : 0;
      const walks = batches(now).map((size) => ({
        places: path(size, now.seed),
        now: done(size, now.reader, time),
        pace: stepTime(size, now.reader),
        last: stepsOf(size),
      }));
      drawMap(pen, walks, area.map);
      drawLosses(pen, walks, time, area.losses, now.clock > 0);
      const entries = batches(now).map((size, i) => [`fill ${HUES[i]}`, title(size), "dot"]);
      const { left, right, bottom } = area.map;
      legend(pen, entries, { left: left + 5, right, top: bottom + 8 });
      return inWords(now);
    },
  });
  const ticks = steps(0, TICKS, 1);
  const film = { name: "clock", values: ticks, seconds: 6 };
  frame.bet({
    options: WHO.map((who, i) => [who, title(batches(OPENS)[i])]),
    // A bet is on 100 rows, whatever the slider has now.
    answer: (now) => answer({ ...now, rows: OPENS.rows }),
    play: () => ({ rows: OPENS.rows, clock: TICKS }),
    film,
  });
  frame.choice({
    name: "reader",
    label: "rows come from",
    options: [["memory", "memory"], ["loader", "loader"]],
    change: (reader) => {
      Object.assign(state, { reader, rows: OPENS.rows, clock: 0 });
      frame.reopen();
    },
  });
  frame.slider({ name: "rows", label: "rows in a blue step", values: SIZES });
  const shown = (tick) => (tick ? inTime(clockTime(tick)) : "0 ms");
  frame.slider({ name: "clock", label: "clock", values: ticks, text: shown });
  frame.player(film);
  frame.button({
    name: "again",
    text: () => "Other noise",
    press: () => frame.set({ seed: state.seed + 1 }),
  });
  return () => frame.close();
}

export { OPENS, SIZES, stepsOf, stepTime, arrival, path, done, better, loss, answer };
export default { render };
