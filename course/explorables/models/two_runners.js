const MACHINES = {
  cores: { label: "CPU", gpu: false, launch: 20 },
  a100: { label: "A100", gpu: true, launch: 8 },
  h100: { label: "H100", gpu: true, launch: 6 },
};
const WAYS = {
  compile: { label: "compiled", parts: 1, fuses: true },
  blocks: { label: "blocks only", parts: 6, fuses: true },
  graph: { label: "CUDA graph", parts: 0, replays: true },
  both: { label: "compiled + graph", parts: 1, fuses: true, replays: true },
};
// Between the calls: how often it is compiled, and captured.
const CHANGES = {
  nothing: { label: "nothing", compiled: 1, captured: 1 },
  shape: { label: "the shape, once", compiled: 2, captured: 2 },
  shapes: { label: "the shape, 5 times", compiled: 2, captured: 6 },
  number: { label: "a Python number, always", compiled: 8, captured: Infinity },
};
const OPENS = {
  ...{ steps: 1000, operators: 120, kernel: 3, machine: "cores" },
  ...{ way: "compile", changes: "nothing", cache: "cold", time: 0 },
};
const BETS = [300, 3000, 30000, 300000];
const STEPS = [10, 30, 100, 300, 1000, 3000, 10000, 30000, 100000, 300000, 1000000];
const OPERATORS = [12, 24, 48, 80, 120, 200, 300, 400];
const KERNELS = [0.5, 1, 2, 3, 5, 10, 20, 30, 50, 100, 200]; // microseconds

const SECONDS = 0.4; // to compile an operator
const WARM = 5; // times as fast, where the code lies on disk
const CAPTURE = 1; // seconds
const REPLAY = 1; // microseconds for a launch by a graph
const FUSED = 3; // operators that become one
const CUT = 1.2; // times as many kernels, where blocks are compiled apart

// What fusion leaves of a kernel's time. Short ones move bytes, and half of them are saved. Those
// of 100 microseconds and more are products, which a library computes as before.
const left = ({ kernel }) => clamp(0.5 + 0.5 * Math.log10(kernel / 10), 0.5, 1);

// Without a GPU there are no CUDA graphs, and a number that changes ends compiled code.
function acting(state) {
  const { fuses, replays, parts } = WAYS[state.way];
  const given = state.changes === "number";
  const graphs = MACHINES[state.machine].gpu && Boolean(replays) && !given;
  return { fuses: Boolean(fuses) && !given, graphs, parts };
}

// A step: kernels, microseconds to launch one and to run one, and microseconds in all. A GPU works
// while the next kernels are launched.
function step(state, eager) {
  const { operators, kernel, machine } = state;
  const { gpu, launch } = MACHINES[machine];
  const { fuses, graphs, parts } = eager ? {} : acting(state);
  const count = fuses ? (operators / FUSED) * (parts > 1 ? CUT : 1) : operators;
  const each = graphs ? REPLAY : launch;
  const work = operators * kernel * (fuses ? left(state) : 1);
  const time = gpu ? Math.max(count * each, work) : count * each + work;
  return { count, each, run: work / count, time };
}

// Seconds before the first fast step, in all.
function before(state) {
  const { parts, replays } = { replays: false, ...WAYS[state.way] };
  const { compiled, captured } = CHANGES[state.changes];
  const once = parts ? (SECONDS * state.operators) / parts : 0;
  const code = compiled * once / (state.cache === "warm" ? WARM : 1);
  const graphs = replays && MACHINES[state.machine].gpu && captured < Infinity;
  return code + (graphs ? captured * CAPTURE : 0);
}

const seconds = (state, eager) => step(state, eager).time / 1e6;

// Seconds of so many steps.
function total(state, eager, count = state.steps) {
  return (eager ? 0 : before(state)) + count * seconds(state, eager);
}

// Steps after which the second runner is not behind any more; Infinity if it never catches up.
function paid(state) {
  const saved = seconds(state, true) - seconds(state, false);
  return saved > 1e-12 ? Math.max(1, Math.ceil(before(state) / saved - 1e-9)) : Infinity;
}

// The first of the bets at which it has paid.
const answer = (state) => BETS.filter((count) => count >= paid(state)).slice(0, 1);

// Steps that a runner has done, and the part of its compiling, at a moment: `time` is a part of
// what the faster one takes.
function place(state, eager) {
  const now = state.time * Math.min(total(state, true), total(state, false));
  const wait = eager ? 0 : before(state);
  // The last step is done at the end, whatever the rounding.
  const done = clamp((now - wait) / seconds(state, eager) + 1e-9 * state.steps, 0, state.steps);
  return { done: now < wait ? 0 : done, ready: wait ? clamp(now / wait, 0, 1) : 1 };
}

// Microseconds at which the first kernels of a step are launched and run, for as many operators.
function magnified(state, eager, operators) {
  const { count, each, run } = step(state, eager);
  const { gpu } = MACHINES[state.machine];
  const blocks = [];
  let [host, device] = [0, 0];
  for (let i = 0; i < Math.round((operators * count) / state.operators); i++) {
    const launch = [host, host + each];
    const begin = Math.max(launch[1], device);
    device = begin + run;
    host = gpu ? launch[1] : device;
    blocks.push({ launch, kernel: [begin, device] });
  }
  return blocks;
}

// ---------------------------------------------------------------- words

const UNITS = [[3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"], [0, "µs"]];
function inTime(value) {
  const [size, unit] = UNITS.find(([least]) => value >= 1.5 * least);
  return `${Number((value / (size || 1e-6)).toPrecision(2)).toLocaleString("en")} ${unit}`;
}

const number = (value) => value.toLocaleString("en");

function inWords(state) {
  const [slow, fast] = [true, false].map((eager) => seconds(state, eager));
  const each = `A step takes ${inTime(slow)} eagerly, ${inTime(fast)} ${WAYS[state.way].label}`;
  return `${each}. ${verdict(state)} ${reason(state)}`.trim();
}

function verdict(state) {
  const after = paid(state);
  const first = `It needs ${inTime(before(state))} first`;
  if (after === Infinity) return before(state) ? `${first}: never paid.` : "Nothing is gained.";
  const saved = total(state, true) - total(state, false);
  const level = Math.abs(saved) < 1e-3 * total(state, true);
  const ahead = state.steps < after ? "is still behind" : level ? "is level" : "is ahead";
  return `${first}: paid after ${number(after)} steps. At ${number(state.steps)} it ${ahead}.`;
}

// What decides here.
function reason(state) {
  const { gpu, launch } = MACHINES[state.machine];
  const { fuses, graphs } = acting(state);
  if (state.changes === "number") {
    if (!before(state)) return "A graph would repeat the old number: it cannot be used.";
    return "Each new number is compiled anew; after eight PyTorch gives up, and runs it eagerly.";
  }
  if (!gpu && WAYS[state.way].replays) return "A CPU has no CUDA graphs.";
  if (!fuses && !graphs) return "";
  if (gpu && state.kernel > launch && left(state) === 1) {
    return "The GPU is busy with long kernels: launches hide behind them.";
  }
  if (left(state) === 1) return "Only launches are saved: long kernels stay as they are.";
  if (state.changes === "nothing") return "";
  if (graphs) return "A graph has one shape: each new one is captured anew.";
  return "From the second shape on the code is for any shape.";
}
