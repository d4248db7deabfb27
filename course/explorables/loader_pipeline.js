// 04: batches from loading to training, as PyTorch's DataLoader hands them over.

const WARM = 168; // batches that are not counted
const COUNTED = 840; // a multiple of every number of workers
const MOST = 8; // workers

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

// Milliseconds per batch, and those of them that training waits, once the pipeline has filled.
function perBatch(settings) {
  const batches = pipeline(settings, WARM + COUNTED).slice(WARM);
  const last = batches[COUNTED - 1];
  const wait = mean(batches.map(({ want, take }) => take - want));
  return { time: (last.done - batches[0].want) / COUNTED, wait };
}

// Whether training waits for no more than 1 % of its time.
function keepsBusy(settings) {
  const { time, wait } = perBatch(settings);
  return wait < 0.01 * time;
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
  };
}

// ---------------------------------------------------------------- drawing

const SHOWN = 600; // milliseconds
const TIMES = steps(0, SHOWN, 1);
const GLIDE = 9; // milliseconds that a batch is seen on its way
const [LANE, STRIP, BOX] = [23, 104, 28]; // pixels

const differ = (value) => `± ${Math.round(100 * value)} %`;
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

// Corners of boxes: in the queue (0 is next), at the end of a worker's lane, in training.
function placesOf(state, { left, right, top }) {
  const x = linear(0, SHOWN, left, right);
  const model = right - 58;
  const slot = (place) => [model - 22 - 32 * (place + 1), 44];
  const lane = (worker) => top + 56 + LANE * worker;
  const worker = (number) => [x(state.time) - BOX / 2, lane(number) - 4];
  return { x, lane, model, slot, worker, room: Math.floor((model - 30) / 32) };
}

const between = ([x, y], [toX, toY], part) => [x + (toX - x) * part, y + (toY - y) * part];

function drawBatch(pen, [x, y], number) {
  pen.rect(x, y, BOX, BOX, "fill blue", 5);
  pen.text(x + BOX / 2, y + BOX / 2 + 4, number + 1, "small bold on middle");
}

// What is done rises in the box.
function drawBox(pen, x, part, look, word) {
  pen.rect(x, 30, 56, 56, "fill edge", 5);
  pen.rect(x, 30 + 56 * (1 - part), 56, 56 * part, look, 5);
  pen.text(x + 28, 62, word, `bold middle ${part > 0.55 ? "on" : ""}`);
}

function drawModel(pen, { training, loading }, { model }, time) {
  const own = loading.find(({ worker }) => worker < 0);
  if (training) {
    const part = (time - training.take) / (training.done - training.take);
    drawBox(pen, model, part, "fill green", training.i + 1);
  } else if (own) {
    drawBox(pen, model, (time - own.begin) / (own.end - own.begin), "fill blue", "loads");
  } else drawBox(pen, model, 1, "fill red half", "waits");
}

// From the end of a worker's lane to the queue, and from there to training.
function drawTravel(pen, { loaded, training, next }, at, time) {
  const placeOf = ({ i }) => at.slot(Math.min(i - next, at.room - 1));
  for (const batch of [...loaded].reverse()) {
    const part = clamp((time - batch.end) / GLIDE, 0, 1);
    drawBatch(pen, between(at.worker(batch.worker), placeOf(batch), part), batch.i);
  }
  const part = (time - training?.take) / GLIDE;
  if (training?.worker >= 0 && part < 1) {
    const from = training.take > training.end ? at.slot(0) : at.worker(training.worker);
    drawBatch(pen, between(from, [at.model + 14, 44], part), training.i);
  }
}

// Batches on their way, at this moment.
function drawStrip(pen, state, batches, at) {
  const now = momentOf(batches, state.time);
  const slots = Math.min(at.room, state.workers * state.prefetch);
  pen.text(at.model - 22, 12, slots ? "loaded, in order" : "no worker", "small faint end");
  pen.text(at.model + 28, 12, "training", "small faint middle");
  for (let place = 0; place < slots; place++) pen.rect(...at.slot(place), BOX, BOX, "fill pale", 5);
  drawModel(pen, now, at, state.time);
  drawTravel(pen, now, at, state.time);
}

function drawLanes(pen, state, batches, { x, lane }, { left, right, top }) {
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

// Why training waits, or that it does not and fewer workers are enough.
function reason(state) {
  const { workers, load, train } = state;
  const [enough] = answer(state);
  if (workers > enough) {
    return `${enough === 1 ? "One is" : `${enough} are`} enough; more of them only take memory.`;
  }
  if (workers === enough) return "One worker fewer would keep it waiting.";
  if (load > workers * train) {
    return `One is loaded every ${ms(load / workers)}, and training takes ${ms(train)}.`;
  }
  const queue = state.prefetch > OPENS.prefetch ? "; the longer queue bridges part of it" : "";
  return `On average they are fast enough, but a long load holds up all behind it${queue}.`;
}

function inWords(state) {
  const { time, wait } = perBatch(state);
  if (!state.workers) return `No worker: ${ms(time)} per batch, ${ms(state.load)} of it loading.`;
  const who = state.workers > 1 ? `${state.workers} workers` : "One worker";
  const waits = keepsBusy(state) ? "hardly any waiting" : `${ms(wait)} of it waiting`;
  return `${who}: ${ms(time)} per batch, ${waits}. ${reason(state)}`;
}

const OPENS = { workers: 2, load: 75, train: 25, prefetch: 2, uneven: 0.9, seed: 3, time: 218 };

function render({ el }) {
  const state = { ...OPENS };
  const area = ({ width }) => ({ left: 66, right: width - 4, top: STRIP });
  let put;
  const frame = new Frame(el, {
    name: "loader-pipeline",
    ask: "What is the smallest number of workers with which training hardly ever waits?",
    task: "Press Play, and add workers. Then take 3, and raise prefetch: does a longer queue help?",
    caption:
      "Simulated: one worker loads a batch, and training takes them in order, as with PyTorch's " +
      "DataLoader. Each worker may be prefetch batches ahead, has a core of its own, and hands " +
      `over in no time. The time is the mean of ${COUNTED} batches; less than 1 % of it is hardly ` +
      "any waiting. The panel below measures your machine.",
    state,
    height: (width) => STRIP + (width < NARROW ? 314 : 294),
    draw: (pen, now, size) => {
      const batches = pipeline(now, 1 + Math.ceil(SHOWN / now.train) + now.workers * now.prefetch);
      const at = placesOf(now, area(size));
      put?.(...drawLanes(pen, now, batches, at, area(size)));
      drawStrip(pen, now, batches, at);
      return inWords(now);
    },
  });
  const options = [3, 4, 5, 6].map((workers) => [workers, String(workers)]);
  // As the question asks, wherever the sliders are.
  const play = (workers) => ({ ...OPENS, time: state.time, workers });
  frame.bet({ name: "workers", options, answer: () => answer(OPENS), play });
  frame.slider({ name: "workers", label: "workers", values: steps(0, MOST, 1) });
  frame.slider({ name: "load", label: "loading a batch", values: steps(5, 150, 5), text: ms });
  frame.slider({ name: "train", label: "training on it", values: steps(5, 100, 5), text: ms });
  frame.slider({ name: "prefetch", label: "prefetch", values: steps(1, 8, 1) });
  const parts = steps(0, 0.9, 0.1);
  frame.slider({ name: "uneven", label: "loads differ by", values: parts, text: differ });
  frame.player({ name: "time", values: TIMES, seconds: 14 });
  put = frame.grip({
    name: "time",
    label: "time",
    look: "dark",
    values: TIMES,
    text: ms,
    from: (x) => {
      const { left, right } = area(frame.size());
      return linear(0, SHOWN, left, right).back(x);
    },
  });
  return () => frame.close();
}

export { lengths, pipeline, perBatch, momentOf, answer, inWords, OPENS };
export default { render };
