// 23: the timeline of a host and a device, with one planted fault that the reader guesses.

const STEPS = 6;
// The last ones are drawn: the first fill the queue.
const SHOWN = 3;

// Milliseconds: `load` a batch, `launch` an operator on the host, `work` on it on the device;
// `operators` of forward, backward and update; `reads`: the host waits after each part.
const HEALTHY = { load: 1, launch: 0.4, work: 2, operators: [4, 6, 2], reads: false };

// Which fault is behind which letter; `size` from 1 to 10 is how bad it is.
const CASES = {
  A: "data",
  B: "read",
  C: "launch",
  D: "update",
  E: "none",
};

function program(fault, size) {
  if (fault === "data") return { ...HEALTHY, load: 8 * size };
  if (fault === "read") return { ...HEALTHY, launch: 0.4 + 0.15 * size, reads: true };
  if (fault === "launch") return { ...HEALTHY, launch: 0.5 * size, work: 0.4 };
  if (fault === "update") return { ...HEALTHY, operators: [4, 6, 2 + 6 * size], work: 1 };
  return HEALTHY;
}

// Everything that happens: [lane, part, step, begin, end], lane "host" or "device".
function timeline({ load, launch, work, operators, reads }) {
  const blocks = [];
  let [host, device] = [0, 0];
  for (let step = 0; step < STEPS; step++) {
    blocks.push(["host", "data", step, host, host + load]);
    host += load;
    operators.forEach((count, part) => {
      for (let i = 0; i < count; i++) {
        blocks.push(["host", PARTS[part], step, host, host + launch]);
        host += launch;
        const begin = Math.max(device, host);
        blocks.push(["device", PARTS[part], step, begin, begin + work]);
        device = begin + work;
      }
      if (reads && device > host) {
        blocks.push(["host", "waits", step, host, device]);
        host = device;
      }
    });
    // The host runs at most one step ahead: its queue is full.
    if (device - host > 30) {
      blocks.push(["host", "queue", step, host, device - 30]);
      host = device - 30;
    }
  }
  return blocks;
}

const PARTS = ["forward", "backward", "update"];

// Milliseconds of a step, and the share of it in which the device works.
function summary(blocks) {
  const ends = Array.from({ length: STEPS }, (_, step) =>
    Math.max(...blocks.filter((block) => block[2] === step).map((block) => block[4])),
  );
  const step = (ends[STEPS - 1] - ends[STEPS - 1 - SHOWN]) / SHOWN;
  const busy = blocks
    .filter(([lane, , number]) => lane === "device" && number >= STEPS - SHOWN)
    .map(([, , , begin, end]) => end - begin);
  return { step, busy: sum(busy) / SHOWN / step };
}

// ---------------------------------------------------------------- drawing

const LOOKS = {
  data: "fill orange",
  forward: "fill blue",
  backward: "fill green",
  update: "fill grey",
  waits: "fill red half",
  queue: "fill pale",
};
const NAMED = ["data", "forward", "backward", "update", "waits"].map((part) => [LOOKS[part], part]);
const WORDS = {
  data: "waits for data",
  read: "reads a value back in every part",
  launch: "launches many small operators",
  update: "updates parameters one by one",
  none: "nothing: the device is busy",
};
const HOW = {
  data: "before each forward pass both lanes show a gap, as long as the orange block",
  read: "the host waits (red), and the device has a gap after each part",
  launch: "the host is never idle, and the device has a gap after each operator",
  update: "the grey part is long: many small operators at the end of each step",
  none: "the device lane has no gap; the host is ahead of it",
};

function drawLanes(pen, blocks, { left, right, top }) {
  const first = Math.min(
    ...blocks.filter(([, , step]) => step >= STEPS - SHOWN).map((block) => block[3]),
  );
  const last = Math.max(...blocks.map((block) => block[4]));
  const x = linear(first, last, left, right);
  ["host", "device"].forEach((lane, row) => {
    const y = top + 58 * row;
    pen.text(left - 8, y + 26, lane, "end bold");
    pen.rect(left, y, right - left, 44, "fill pale", 4);
    for (const [, part, , begin, end] of blocks.filter((block) => block[0] === lane)) {
      if (end <= first) continue;
      const from = x(Math.max(begin, first));
      pen.rect(from, y + 4, Math.max(0.6, x(end) - from - 0.6), 36, LOOKS[part], 2);
    }
  });
  const bottom = top + 58 * 2;
  const length = last - first;
  const text = (value) => `${value}${value ? "" : " ms"}`;
  columns(pen, ticks(0, length, 6), linear(0, length, left, right), bottom, text);
  return bottom;
}

function inWords(state, { step, busy }) {
  const fault = CASES[state.which];
  const facts = `A step takes ${step.toFixed(0)} ms; the device works ${Math.round(100 * busy)} % of it.`;
  if (state.guess === "?") return `${facts} What is wrong?`;
  if (state.guess !== fault) return `${facts} Not that: look for where the device has its gaps.`;
  return `${facts} Right: ${HOW[fault]}.`;
}

function render({ el }) {
  const state = { which: "A", size: 5, guess: "?" };
  const frame = new Frame(el, {
    name: "read-timeline",
    ask: "Five programs, one fault in each, or none. Where does the time go?",
    task: "Choose a program, look for gaps in the lane of the device, and guess.",
    caption:
      "Simulated: the host launches operators, each takes its time on the device, in order; " +
      "the host runs ahead until its queue is full. Three steps are shown. A profiler draws " +
      "such lanes of your own program. Nothing here is measured.",
    state,
    height: () => 190,
    draw: (pen, now, { width }) => {
      const blocks = timeline(program(CASES[now.which], now.size));
      const bottom = drawLanes(pen, blocks, { left: 66, right: width - 12, top: 6 });
      legend(pen, NAMED, { left: 66, right: width - 12, top: bottom + 34 });
      return inWords(now, summary(blocks));
    },
  });
  const change = (which) => frame.set({ which, guess: "?" });
  frame.menu({
    name: "which",
    label: "program",
    options: Object.keys(CASES).map((letter) => [letter, `program ${letter}`]),
  });
  frame.slider({ name: "size", label: "how bad it is", values: steps(1, 10, 1) });
  frame.menu({
    name: "guess",
    label: "it",
    options: [["?", "does what?"], ...Object.entries(WORDS)],
  });
  frame.button({
    name: "next",
    text: () => "Next program",
    press: () => change(String.fromCharCode(65 + ((state.which.charCodeAt(0) - 64) % 5))),
  });
  return () => frame.close();
}

export { program, timeline, summary, CASES, HEALTHY };
export default { render };
