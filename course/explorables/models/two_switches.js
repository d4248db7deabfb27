const END = 8; // batches; time is the number of those that have run, also in part
const KEPT = 2; // tensors of a block: what its layers need for their gradients
const DEPTHS = steps(2, 12, 1); // numbers of blocks
const OPENS = {
  layers: "train",
  autograd: "grad",
  total: "loss",
  blocks: 6,
  time: 0.6,
  found: [],
};

// What can be set, and what each bet switches.
const CHOICES = {
  layers: ["train", "eval"],
  autograd: ["grad", "no_grad", "inference_mode"],
  total: ["loss", "item"],
};
const BETS = {
  eval: { layers: "eval" },
  no_grad: { autograd: "no_grad" },
  item: { total: "item" },
};

// ---------------------------------------------------------------- memory

const records = ({ autograd }) => autograd === "grad";

// The batch that runs, from 0 on, and how many of its blocks have, the running one included.
function place({ blocks }, time) {
  const batch = Math.max(0, Math.ceil(time) - 1);
  return { batch, run: Math.ceil((time - batch) * blocks - 1e-6) };
}

// Whole graphs of earlier batches: the total holds all of them, and after `.item()` the name
// `loss` still holds the last one.
function graphs(state, time) {
  if (!records(state)) return 0;
  const { batch } = place(state, time);
  return state.total === "loss" ? batch : Math.min(batch, 1);
}

// Tensors that are alive: in the graphs of earlier batches, and those of this batch. Where nothing
// is recorded, these are the input and the output of the block that runs.
function held(state, time) {
  const { run } = place(state, time);
  const recorded = records(state) ? run : Math.min(run, 1);
  return { earlier: graphs(state, time) * state.blocks * KEPT, now: recorded * KEPT };
}

function alive(state, time) {
  const { earlier, now } = held(state, time);
  return earlier + now;
}

// Most is alive at the end of a batch.
const peak = (state) => Math.max(...steps(1, END, 1).map((time) => alive(state, time)));

// ---------------------------------------------------------------- the answer

const UNITS = 8;
const DROPPED = 0.25;

// Which numbers of a batch dropout strikes out, in the first pass or the second.
function dropped(state, pass, batch) {
  const next = uniform(100 * pass + batch + 57);
  return steps(1, UNITS, 1).map(() => next() < DROPPED && state.layers === "train");
}

// The mean loss of all batches. A batch's is the mean of its numbers; what dropout leaves of them
// is made larger by as much as it takes on average.
function loss(state, pass) {
  const each = steps(0, END - 1, 1).map((batch) => {
    const next = uniform(1000 + batch);
    const gone = dropped(state, pass, batch);
    const scale = state.layers === "train" ? 1 / (1 - DROPPED) : 1;
    return mean(gone.map((struck) => (0.3 + 0.9 * next()) * (struck ? 0 : scale)));
  });
  return mean(each);
}

// Batch norm's running mean: 0 from the training images. Validation images have another one.
const OTHER = 1.5;
const MOMENTUM = 0.1;
function running(state, time) {
  if (state.layers !== "train") return 0;
  return OTHER * (1 - (1 - MOMENTUM) ** Math.ceil(time));
}

// ---------------------------------------------------------------- lamps, question and score

const LAMPS = {
  little: "little memory",
  steady: "steady memory",
  same: "same answer twice",
  unlearned: "nothing learned",
};

// What is wrong by now, by lamp. A second pass is made at the end.
function faults(state, time) {
  const training = state.layers === "train";
  return {
    little: alive(state, time) > KEPT,
    steady: graphs(state, time) > 1,
    same: training && time === END,
    unlearned: running(state, time) > 0,
  };
}

// "red" as soon as something is wrong, "green" if nothing was until the end, "open" before.
function lamps(state, time) {
  const rest = time === END ? "green" : "open";
  const wrong = Object.entries(faults(state, time));
  return Object.fromEntries(wrong.map(([lamp, is]) => [lamp, is ? "red" : rest]));
}

const isGreen = (state) => Object.values(lamps(state, END)).every((lamp) => lamp === "green");

function settings() {
  const all = [];
  for (const layers of CHOICES.layers)
    for (const autograd of CHOICES.autograd)
      for (const total of CHOICES.total) all.push({ layers, autograd, total });
  return all;
}
const GREEN = settings().filter((each) => isGreen({ ...OPENS, ...each })).length;

const keyOf = ({ layers, autograd, total }) => `${layers} ${autograd} ${total}`;

// The state after a switch, run to its end; a green setting is noted.
function switched(state, changes) {
  const next = { ...state, ...changes, time: END };
  const key = keyOf(next);
  const news = isGreen(next) && !next.found.includes(key);
  return { ...next, found: news ? [...next.found, key] : next.found };
}

// The switches that alone leave the lowest peak.
function answer(state) {
  const names = Object.keys(BETS);
  const peaks = names.map((name) => peak({ ...state, ...BETS[name] }));
  return names.filter((_, i) => peaks[i] === Math.min(...peaks));
}

function inWords(state) {
  const { time } = state;
  if (time < END) {
    const batch = time ? `Batch ${place(state, time).batch + 1}` : "Before the first batch";
    return `${batch}: ${alive(state, time)} tensors.`;
  }
  const star = isGreen(state) ? "★ All green. " : "";
  return `${star}${memoryInWords(state)} ${answerInWords(state)}`;
}

function memoryInWords(state) {
  const most = `At most ${peak(state)} tensors`;
  if (!records(state)) return `${most}: input and output of the block that runs.`;
  const holds = {
    loss: "the total holds every graph",
    item: "this graph, and the one that loss still holds",
  };
  const told = `${most}: ${holds[state.total]}.`;
  return state.layers === "eval" ? `${told} eval() tells autograd nothing.` : told;
}

function answerInWords(state) {
  const [first, second] = [1, 2].map((pass) => loss(state, pass).toFixed(3));
  if (state.layers === "eval") return `Mean loss ${first}, twice.`;
  return `Mean loss ${first}, then ${second}; batch norm has learned.`;
}
