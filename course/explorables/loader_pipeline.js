// 04: batches from loading to training, as PyTorch's DataLoader hands them over.

const WARM = 168; // batches that are not counted
const COUNTED = 840; // a multiple of every number of workers

// Milliseconds that each load takes: between load (1 - uneven) and load (1 + uneven).
function lengths({ load, uneven, seed }, count) {
  const next = uniform(seed);
  return Array.from({ length: count }, () => load * (1 + uneven * (2 * next() - 1)));
}

// For each batch: its worker (-1: the main process), and when in milliseconds
// its load begins and ends, training wants it, takes it, and is done with it.
function pipeline(settings, count) {
  const { train, workers, prefetch } = settings;
  const free = Array(Math.max(1, workers)).fill(0);
  const batches = [];
  for (const [i, length] of lengths(settings, count).entries()) {
    const want = i ? batches[i - 1].done : 0;
    // A worker is told to load one more whenever training takes a batch.
    const before = batches[i - workers * prefetch];
    const issued = workers ? (before?.take ?? 0) : want;
    const worker = workers ? i % workers : -1;
    const begin = workers ? Math.max(issued, free[worker]) : want;
    const end = begin + length;
    if (workers) free[worker] = end;
    const take = Math.max(want, end);
    batches.push({ worker, begin, end, want, take, done: take + train });
  }
  return batches;
}

// Milliseconds a step, and how many of them training waits, once the pipeline has filled.
function stepTime(settings) {
  const counted = pipeline(settings, WARM + COUNTED).slice(WARM);
  const last = counted[COUNTED - 1];
  const wait = mean(counted.map(({ want, take }) => take - want));
  return { step: (last.done - counted[0].want) / COUNTED, wait };
}

// ---------------------------------------------------------------- drawing

const MOST = 8; // workers
const SHOWN = 600; // milliseconds
const LANE = 23; // pixels

const ms = (value) => `${Number(value.toPrecision(3))} ms`;

function drawBar(pen, x, [begin, end], y, height, look, word) {
  const [left, right] = [x(begin), Math.min(x(end), x(SHOWN))];
  if (left >= x(SHOWN)) return;
  pen.rect(left + 0.5, y, Math.max(1, right - left - 1), height, look, 3);
  const room = right - left > 8 + 7 * String(word ?? "").length;
  if (word === undefined || !room) return;
  pen.text((left + right) / 2, y + height / 2 + 4, word, "small bold on middle");
}

function drawLanes(pen, state, { left, right, top }) {
  const batches = pipeline(state, 1 + Math.ceil(SHOWN / state.train));
  const x = linear(0, SHOWN, left, right);
  const lane = (worker) => top + 56 + LANE * worker;
  pen.text(left - 8, top + 24, "training", "end bold");
  pen.rect(left, top, right - left, 36, "fill pale", 4);
  for (let worker = 0; worker < MOST; worker++) {
    const on = worker < state.workers;
    pen.rect(left, lane(worker), right - left, LANE - 4, "fill pale", 4);
    pen.text(left - 8, lane(worker) + 14, `worker ${worker + 1}`, `small end ${on ? "" : "grey"}`);
  }
  for (const [i, { worker, begin, end, want, take, done }] of batches.entries()) {
    drawBar(pen, x, [take, done], top, 36, "fill green", i + 1);
    if (worker < 0) {
      drawBar(pen, x, [begin, end], top, 36, "fill blue", i + 1);
      continue;
    }
    if (take > want) drawBar(pen, x, [want, take], top + 4, 28, "fill red half", "waits");
    drawBar(pen, x, [begin, end], lane(worker), LANE - 4, "fill blue", i + 1);
    const kept = [x(end) + 1, Math.min(x(take), right)];
    const middle = lane(worker) + (LANE - 4) / 2;
    if (kept[1] > kept[0]) pen.line(kept[0], middle, kept[1], middle, "blue half");
  }
  const bottom = lane(MOST) + 2;
  columns(pen, steps(0, SHOWN, 100), x, bottom, (value) => `${value}${value ? "" : " ms"}`);
  pen.line(left, bottom, right, bottom, "hair");
  const entries = [
    ["fill blue", "loading"],
    ["fill green", "training"],
    ["fill red half", "waiting for data"],
    ["blue half", "loaded, in the queue", "line"],
  ];
  legend(pen, entries, { left, right, top: bottom + 28 });
}

// Step time by number of workers; returns the place of the present number.
function drawCurve(pen, state, { left, right, top, bottom }) {
  const all = steps(0, MOST, 1).map((workers) => stepTime({ ...state, workers }).step);
  const most = 1.1 * Math.max(...all);
  const x = linear(0, MOST, left, right);
  const y = linear(0, most, bottom, top);
  pen.text(left, top - 10, "time of a step, by workers", "small faint");
  rows(pen, ticks(0, most, 6), y, left, right, (value) => `${value}${value ? "" : " ms"}`);
  columns(pen, steps(0, MOST, 2), x, bottom);
  pen.line(left, y(state.train), right, y(state.train), "green dash");
  pen.text(right, y(state.train) + 15, "training alone", "small bold green end");
  pen.path(all.map((step, workers) => [x(workers), y(step)]), "line grey");
  all.forEach((step, workers) => pen.dot(x(workers), y(step), 4, "fill grey"));
  pen.text(right, bottom + 33, "workers", "small faint end");
  const now = all[state.workers];
  const before = state.workers > 4;
  const shift = before ? -4 : 14;
  pen.text(x(state.workers) + shift, y(now) - 16, ms(now), `big ${before ? "end" : ""}`);
  return [x(state.workers), y(now)];
}

function places({ width, narrow }) {
  const lanes = { left: 66, right: narrow ? width - 4 : Math.round(width * 0.68), top: 6 };
  const curve = narrow
    ? { left: 66, right: width - 12, top: 350, bottom: 480 }
    : { left: lanes.right + 48, right: width - 12, top: 34, bottom: 232 };
  return { lanes, curve };
}

function inWords(state) {
  const { step, wait } = stepTime(state);
  const names = ["No worker", "One worker"];
  const who = names[state.workers] ?? `${state.workers} workers`;
  let waits = `${ms(wait)} of it waiting for data`;
  if (!state.workers) waits = `${ms(state.load)} of it loading`;
  else if (wait < 0.01 * step) waits = "no waiting";
  const saved = step - stepTime({ ...state, workers: state.workers + 1 }).step;
  const more = saved < 0.01 * step ? "worker would bring nothing" : `would save ${ms(saved)}`;
  return `${who}: ${ms(step)} a step, ${waits}. One more ${more}.`;
}

function render({ el }) {
  const state = { workers: 1, load: 60, train: 25, prefetch: 2, uneven: 0, seed: 3 };
  let grip;
  const frame = new Frame(el, {
    name: "loader-pipeline",
    ask: "When does one more worker bring nothing?",
    task:
      "Drag the orange dot to add workers. Then change the times. " +
      "Prefetch matters only for uneven loads: why?",
    caption:
      "Simulated: each batch is loaded by one worker and trained on in order, as PyTorch's " +
      "DataLoader does; prefetch is the number of batches that each worker may be ahead. " +
      "Every worker has a " +
      "core of its own here, and handing a batch over takes no time. The step time is the mean " +
      `of ${COUNTED} steps. Nothing here is measured; the panel below measures your machine.`,
    state,
    height: (width) => (width < NARROW ? 520 : 300),
    draw: (pen, now, size) => {
      const area = places(size);
      drawLanes(pen, now, area.lanes);
      grip?.(...drawCurve(pen, now, area.curve));
      return inWords(now);
    },
  });
  frame.slider({ name: "workers", label: "workers", values: steps(0, MOST, 1) });
  frame.slider({ name: "load", label: "loading a batch", values: steps(5, 150, 5), text: ms });
  frame.slider({ name: "train", label: "training on it", values: steps(5, 100, 5), text: ms });
  frame.slider({ name: "prefetch", label: "prefetch", values: steps(1, 8, 1) });
  frame.slider({
    name: "uneven",
    label: "loads differ by",
    values: steps(0, 0.9, 0.1),
    text: (value) => `± ${Math.round(100 * value)} %`,
  });
  grip = frame.grip({
    name: "workers",
    label: "workers, on the curve",
    look: "orange",
    values: steps(0, MOST, 1),
    from: (x) => {
      const { left, right } = places(frame.size()).curve;
      return linear(0, MOST, left, right).back(x);
    },
  });
  return () => frame.close();
}

export { lengths, pipeline, stepTime };
export default { render };
