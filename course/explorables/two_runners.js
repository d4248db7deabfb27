// 22: an eager and a compiled program run for so many steps; the compiled one starts late.

const LANE = 28;
const STRIP = 14;
const STRIDE = 132;
const SHOWN = 12; // operators of the magnified step
const HUES = ["blue", "green"];
const LEGEND = [
  ["fill purple", "compiles, captures"],
  ["fill orange", "launches a kernel"],
  ["fill sky", "runs it"],
];
const us = (value) => `${value} µs`;

// The box in which a runner waits for its code, and the track behind it.
function track({ width, narrow }) {
  const box = narrow ? 84 : 132;
  return { box, left: box + 8, right: width - 12 };
}

function drawLane(pen, state, { size, eager, top }) {
  const { box, left, right } = track(size);
  const { done, ready } = place(state, eager);
  const x = linear(0, state.steps, left, right);
  const hue = HUES[eager ? 0 : 1];
  pen.rect(0, top, box, LANE, "fill pale", 4);
  pen.rect(0, top, box * (eager ? 0 : ready), LANE, "fill purple half", 4);
  const does = WAYS[state.way].parts ? "compiles" : "captures";
  const waits = eager || !before(state) ? "starts" : `${does} ${inTime(before(state))}`;
  pen.text(box / 2, top + 18, waits, "small middle");
  pen.rect(left, top, right - left, LANE, "fill pale", 4);
  pen.rect(left, top, x(done) - left, LANE, `fill ${hue} soft`, 4);
  pen.dot(clamp(x(done), left + 9, right - 9), top + LANE / 2, 9, `fill ${hue}`);
  if (!eager && size.revealed) drawPaid(pen, state, x, top);
}

// From where on the second runner is ahead.
function drawPaid(pen, state, x, top) {
  const after = paid(state);
  if (after > state.steps) return;
  pen.line(x(after), top - 4, x(after), top + LANE + 4, "dash");
  const late = after > state.steps / 2;
  pen.text(x(after) + (late ? -6 : 6), top + 18, "paid", `small bold ${late ? "end" : ""}`);
}

// The first operators of a step: launches above, kernels below, on one scale for both runners.
function drawStep(pen, state, { size, eager, top, longest }) {
  const { left, right } = track(size);
  const x = linear(0, longest, left, right);
  pen.text(left - 8, top + 11, "launches", "small faint end");
  pen.text(left - 8, top + 11 + STRIP, "kernels", "small faint end");
  for (const { launch, kernel } of magnified(state, eager, SHOWN)) {
    const bar = ([begin, end], y, look) =>
      pen.rect(x(begin), y, Math.max(0.8, x(end) - x(begin) - 1), STRIP - 3, look, 2);
    bar(launch, top, "fill orange");
    bar(kernel, top + STRIP, "fill sky");
  }
}

function draw(pen, state, size) {
  const { left, right } = track(size);
  const ends = [true, false].map((eager) => {
    const blocks = magnified(state, eager, SHOWN);
    return blocks[blocks.length - 1].kernel[1];
  });
  const longest = Math.max(...ends);
  [true, false].forEach((eager, row) => {
    const top = STRIDE * row + 24;
    const name = eager ? "eager" : WAYS[state.way].label;
    pen.text(0, top - 8, name, "bold");
    const told = `${number(state.steps)} steps in ${inTime(total(state, eager))}`;
    if (size.revealed) pen.text(right, top - 8, told, "small end");
    drawLane(pen, state, { size, eager, top });
    const each = inTime(seconds(state, eager));
    const words = `a step: ${each}; ${SHOWN} of its ${state.operators} operators:`;
    pen.text(size.narrow ? 0 : left, top + LANE + 22, words, "small faint");
    drawStep(pen, state, { size, eager, top: top + LANE + 30, longest });
  });
  legend(pen, LEGEND, { left: 0, right, top: 2 * STRIDE + 4 });
  return inWords(state);
}

function render({ el }) {
  const state = { ...OPENS };
  const frame = new Frame(el, {
    name: "two-runners",
    ask: "Compiling takes its time: from how many training steps on has it paid?",
    task:
      "Press Play. Then make the kernels longer, take a GPU, or let something change between " +
      "the calls: who is first?",
    caption:
      "Simulated: launching a kernel costs 20 µs on the CPU, 8 on an A100, 6 on an H100, and 1 " +
      "in a CUDA graph. Compiling makes one kernel of three operators, which takes 1.2 s, a fifth " +
      "of it where the code is on disk; it halves their time while they are short. All of this " +
      "is assumed; the panel below measures.",
    state,
    height: (width) => 2 * STRIDE + (width < NARROW ? 44 : 26),
    draw,
  });
  const film = { name: "time", values: steps(0, 1, 0.005), seconds: 6 };
  frame.bet({
    name: "steps",
    options: BETS.map((count) => [count, number(count)]),
    answer,
    play: (count) => ({ steps: count, time: 1 }),
    film,
  });
  // What is moved is seen at its end.
  const change = (name) => (value) => frame.set({ [name]: value, time: 1 });
  const slider = (name, label, values, text) =>
    frame.slider({ name, label, values, text, change: change(name) });
  slider("steps", "steps", STEPS, number);
  slider("operators", "operators in a step", OPERATORS, String);
  slider("kernel", "a kernel runs for", KERNELS, us);
  const options = (choices) => Object.entries(choices).map(([key, { label }]) => [key, label]);
  const machines = options(MACHINES);
  frame.choice({ name: "machine", label: "machine", options: machines, change: change("machine") });
  // Graphs need a GPU.
  const able = (way) => !WAYS[way].replays || MACHINES[state.machine].gpu;
  frame.menu({
    ...{ name: "way", label: "the second runner", options: options(WAYS) },
    change: (way) => frame.set({ way, machine: able(way) ? state.machine : "a100" }),
  });
  frame.menu({ name: "changes", label: "between calls changes", options: options(CHANGES) });
  const caches = [["cold", "no"], ["warm", "yes"]];
  frame.choice({ name: "cache", label: "code on disk", options: caches, change: change("cache") });
  frame.player(film);
  return () => frame.close();
}

export { acting, answer, before, inTime, inWords, left, magnified, paid, place, step, total };
export { BETS, CHANGES, KERNELS, MACHINES, OPENS, OPERATORS, STEPS, WAYS };
export default { render };
