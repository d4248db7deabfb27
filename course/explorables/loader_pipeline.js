// 04: batches from loading to training, as PyTorch's DataLoader hands them over.

const WARM = 168; // batches that are not counted
const COUNTED = 840; // a multiple of every number of workers
const MOST = 8; // workers
const known = new Map(); // step times, as Play asks for the same ones in every frame

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
function stepTime({ workers, load, train, prefetch, uneven, seed }) {
  const settings = { workers, load, train, prefetch, uneven, seed };
  const key = Object.values(settings).join();
  if (!known.has(key)) known.set(key, counted(settings));
  return known.get(key);
}

function counted(settings) {
  const batches = pipeline(settings, WARM + COUNTED).slice(WARM);
  const last = batches[COUNTED - 1];
  const wait = mean(batches.map(({ want, take }) => take - want));
  return { step: (last.done - batches[0].want) / COUNTED, wait };
}

// Whether training waits for no more than 1 % of its time.
function keepsBusy(settings) {
  const { step, wait } = stepTime(settings);
  return wait < 0.01 * step;
}

// The fewest workers with which training never waits.
function answer(state) {
  const enough = steps(1, MOST, 1).find((workers) => keepsBusy({ ...state, workers }));
  return enough ? [enough] : [];
}

// Where each batch is at a moment: in a worker that loads it, loaded, or in training.
function momentOf(batches, time) {
  const next = batches.findIndex(({ take }) => take > time);
  const numbered = batches.map((batch, i) => ({ ...batch, i }));
  return {
    loading: numbered.filter(({ begin, end }) => begin <= time && time < end),
    loaded: numbered.filter(({ end, take }) => end <= time && time < take),
    training: numbered.find(({ take, done }) => take <= time && time < done),
    next,
    taken: next > 0 ? batches[next - 1].take : 0,
  };
}

// ---------------------------------------------------------------- drawing

const SHOWN = 600; // milliseconds
const TIMES = steps(0, SHOWN, 1);
const GLIDE = 9; // milliseconds that a batch is seen on its way
const [LANE, STRIP, BOX] = [23, 104, 28]; // pixels

const ms = (value) => `${Number(value.toPrecision(3))} ms`;

function drawBar(pen, x, [begin, end], y, height, look, word) {
  const [left, right] = [x(begin), Math.min(x(end), x(SHOWN))];
  if (left >= x(SHOWN)) return;
  pen.rect(left + 0.5, y, Math.max(1, right - left - 1), height, look, 3);
  const room = right - left > 8 + 7 * String(word ?? "").length;
  if (word === undefined || !room) return;
  const on = look.includes("half") ? "" : "on";
  pen.text((left + right) / 2, y + height / 2 + 4, word, `small bold ${on} middle`);
}

// Where boxes are in the strip: those of workers, of the queue (0 is next), of training.
function stripPlaces({ right }) {
  const model = right - 58;
  const slot = (place) => [model - 22 - 32 * (place + 1), 44];
  const worker = (number) => [2 + 33 * (number % 4), 28 + 33 * Math.floor(number / 4)];
  return { model, slot, worker, room: Math.floor((model - 164) / 32) };
}

const between = ([x, y], [toX, toY], part) => [x + (toX - x) * part, y + (toY - y) * part];

function drawBatch(pen, [x, y], number) {
  pen.rect(x, y, BOX, BOX, "fill blue", 5);
  pen.text(x + BOX / 2, y + BOX / 2 + 4, number + 1, "small bold on middle");
}

// What is done of a batch rises in the box.
function drawBox(pen, [x, y], size, part, look, word) {
  pen.rect(x, y, size, size, "fill edge", 5);
  if (part > 0) pen.rect(x, y + size * (1 - part), size, size * part, look, 5);
  const written = `bold middle ${part > 0.55 ? "on" : ""} ${size > BOX ? "" : "small"}`;
  pen.text(x + size / 2, y + size / 2 + 4, word, written);
}

function drawModel(pen, now, { model }, time) {
  const at = [model, 30];
  const { training } = now;
  if (training) {
    const part = (time - training.take) / (training.done - training.take);
    drawBox(pen, at, 56, part, "fill green", training.i + 1);
    return;
  }
  const own = now.loading.find(({ worker }) => worker < 0);
  if (own) drawBox(pen, at, 56, (time - own.begin) / (own.end - own.begin), "fill blue", "loads");
  else drawBox(pen, at, 56, 1, "fill red half", "waits");
}

function drawWorkers(pen, now, at, { workers, time }) {
  for (let number = 0; number < workers; number++) {
    const batch = now.loading.find(({ worker }) => worker === number);
    const part = batch ? (time - batch.begin) / (batch.end - batch.begin) : 0;
    drawBox(pen, at.worker(number), BOX, part, "fill blue", batch ? batch.i + 1 : "");
  }
}

// From a worker to its place in the queue, and from there to training.
function drawTravel(pen, now, at, time) {
  // All of the queue moves up when its first batch is taken.
  const late = clamp(1 - (time - now.taken) / GLIDE, 0, 1);
  const placeOf = ({ i }) => Math.min(i - now.next, at.room - 1) + (now.next ? late : 0);
  for (const batch of [...now.loaded].reverse()) {
    const part = clamp((time - batch.end) / GLIDE, 0, 1);
    drawBatch(pen, between(at.worker(batch.worker), at.slot(placeOf(batch)), part), batch.i);
  }
  const { training } = now;
  if (training?.worker >= 0 && late > 0) {
    const from = training.take > training.end ? at.slot(0) : at.worker(training.worker);
    drawBatch(pen, between(from, [at.model + 14, 44], 1 - late), training.i);
  }
}

// Batches on their way, at this moment.
function drawStrip(pen, state, batches, area) {
  const [now, at] = [momentOf(batches, state.time), stripPlaces(area)];
  const slots = Math.min(at.room, state.workers * state.prefetch);
  pen.text(0, 12, state.workers ? "workers load" : "no worker", "small faint");
  pen.text(at.model - 22, 12, slots ? "loaded, in order" : "", "small faint end");
  pen.text(at.model + 28, 12, "training", "small faint middle");
  for (let place = 0; place < slots; place++) pen.rect(...at.slot(place), BOX, BOX, "fill pale", 5);
  drawModel(pen, now, at, state.time);
  drawWorkers(pen, now, at, state);
  drawTravel(pen, now, at, state.time);
}

function drawLanes(pen, state, batches, { left, right, top }) {
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
  const now = x(state.time);
  pen.line(now, top - 4, now, bottom, "faint");
  return [now, bottom];
}

// Step time of the numbers of workers that were tried; returns the place of the present one.
function drawCurve(pen, state, { left, right, top, bottom }) {
  const stepOf = (workers) => stepTime({ ...state, workers }).step;
  const tried = [...state.tried].sort((a, b) => a - b);
  const most = 1.1 * stepOf(0);
  const x = linear(0, MOST, left, right);
  const y = linear(0, most, bottom, top);
  pen.text(left, top - 10, "time of a step, by workers tried", "small faint");
  rows(pen, ticks(0, most, 6), y, left, right, (value) => `${value}${value ? "" : " ms"}`);
  columns(pen, steps(0, MOST, 2), x, bottom);
  pen.line(left, y(state.train), right, y(state.train), "green dash");
  pen.text(right, y(state.train) + 15, "training alone", "small bold green end");
  pen.path(tried.map((workers) => [x(workers), y(stepOf(workers))]), "line grey");
  for (const workers of tried) pen.dot(x(workers), y(stepOf(workers)), 4, "fill grey");
  pen.text(right, bottom + 33, "workers", "small faint end");
  const now = stepOf(state.workers);
  const before = state.workers > 4;
  const shift = before ? -4 : 14;
  pen.text(x(state.workers) + shift, y(now) - 16, ms(now), `big ${before ? "end" : ""}`);
  return [x(state.workers), y(now)];
}

function places({ width, narrow }) {
  const lanes = { left: 66, right: narrow ? width - 4 : Math.round(width * 0.68), top: STRIP };
  const curve = narrow
    ? { left: 66, right: width - 12, top: STRIP + 344, bottom: STRIP + 474 }
    : { left: lanes.right + 48, right: width - 12, top: 34, bottom: STRIP + 226 };
  return { lanes, curve };
}

function inWords(state) {
  const { step, wait } = stepTime(state);
  const names = ["No worker", "One worker"];
  const who = names[state.workers] ?? `${state.workers} workers`;
  let waits = `${ms(wait)} of it waiting for data`;
  if (!state.workers) waits = `${ms(state.load)} of it loading`;
  else if (keepsBusy(state)) waits = "no waiting";
  return `${who}: ${ms(step)} a step, ${waits}.`;
}

const OPENS = {
  workers: 2,
  tried: [2],
  load: 75,
  train: 25,
  prefetch: 2,
  uneven: 0.9,
  seed: 3,
  time: 218,
};

function render({ el }) {
  const state = { ...OPENS };
  const grips = {};
  const frame = new Frame(el, {
    name: "loader-pipeline",
    ask: "How many workers until training never waits?",
    task:
      "Press Play. Drag the orange dot to add workers. " +
      "Then take 3 workers and a longer queue: raise prefetch.",
    caption:
      "Simulated: each batch is loaded by one worker and trained on in order, as PyTorch's " +
      "DataLoader does; prefetch is the number of batches that each worker may be ahead. " +
      "Every worker has a " +
      "core of its own here, and handing a batch over takes no time. The step time is the mean " +
      `of ${COUNTED} steps; less than 1 % of it is no waiting. Nothing here is measured; the ` +
      "panel below measures your machine.",
    state,
    height: (width) => STRIP + (width < NARROW ? 514 : 294),
    draw: (pen, now, size) => {
      const area = places(size);
      const batches = pipeline(now, 1 + Math.ceil(SHOWN / now.train) + now.workers * now.prefetch);
      drawStrip(pen, now, batches, area.lanes);
      grips.time?.(...drawLanes(pen, now, batches, area.lanes));
      grips.workers?.(...drawCurve(pen, now, area.curve));
      return inWords(now);
    },
  });
  const options = [3, 4, 5, 6].map((workers) => [workers, String(workers)]);
  const tryOut = (workers) => ({ workers, tried: [...new Set([...state.tried, workers])] });
  const change = (workers) => frame.set(tryOut(workers));
  frame.bet({ name: "workers", options, answer, play: tryOut });
  const values = steps(0, MOST, 1);
  frame.slider({ name: "workers", label: "workers", values, change });
  frame.slider({ name: "load", label: "loading a batch", values: steps(5, 150, 5), text: ms });
  frame.slider({ name: "train", label: "training on it", values: steps(5, 100, 5), text: ms });
  frame.slider({ name: "prefetch", label: "prefetch", values: steps(1, 8, 1) });
  frame.slider({
    name: "uneven",
    label: "loads differ by",
    values: steps(0, 0.9, 0.1),
    text: (value) => `± ${Math.round(100 * value)} %`,
  });
  frame.player({ name: "time", values: TIMES, seconds: 14 });
  const along = (part, low, high) => (x) => {
    const { left, right } = places(frame.size())[part];
    return linear(low, high, left, right).back(x);
  };
  grips.workers = frame.grip({
    name: "workers",
    label: "workers, on the curve",
    look: "orange",
    values,
    change,
    from: along("curve", 0, MOST),
  });
  grips.time = frame.grip({
    name: "time",
    label: "time",
    look: "dark",
    values: TIMES,
    text: ms,
    from: along("lanes", 0, SHOWN),
  });
  return () => frame.close();
}

export { lengths, pipeline, stepTime, momentOf, answer, OPENS };
export default { render };
