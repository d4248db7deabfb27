// 23: the game of models/read_timeline.js: what slows each program down?

const LOOKS = {
  data: "fill orange",
  forward: "fill blue",
  backward: "fill green",
  update: "fill grey",
  waits: "fill red",
  queue: "fill pale",
  gap: "fill purple half",
};
const NAMED = [
  ...["data", ...PARTS].map((part) => [LOOKS[part], part]),
  [LOOKS.waits, "host waits"],
  [LOOKS.gap, "device waits"],
];
const WORDS = {
  data: "loading data",
  read: "reading values back",
  launch: "many small operators",
  update: "the update",
  none: "nothing",
};
const WHY = {
  data: "The device waits for each orange block, as the batch is not there yet",
  read: "The host waits until the device is done, then the device waits for the host",
  launch: "The host is never idle, and the device waits after each of its short operators",
  update: "The gaps are in the grey part, one small operator after the other per parameter",
  none: "The device has no gap, and the host is ahead of it; only less work would be faster",
};
const STRIDE = 52;
const TIGHT = 320; // pixels in which the legend takes four lines
// So many right of ten, and what is said at the end of a game.
const RANKS = [
  [10, "No fault escapes you!"],
  [7, "You read lanes like a detective."],
  [0, "A new game? Ask of each gap: what does the host do meanwhile?"],
];

// Two lanes, and below them the device's of the mended program, on one scale. `better` is null
// where there is nothing to mend.
function drawLanes(pen, blocks, better, { count, told, left, right, top }) {
  const latest = (all) => all.filter(([, , step]) => step >= STEPS - count);
  const first = Math.min(...latest(blocks).map((block) => block[3]));
  const last = Math.max(...latest(blocks).map((block) => block[4]));
  const x = linear(first, last, left, right);
  const lane = (name, row, own) => {
    const y = top + STRIDE * row;
    pen.text(left - 8, y + 24, name, "end bold");
    pen.rect(left, y, right - left, 40, "fill pale", 4);
    for (const [, part, , begin, end] of own.filter((block) => block[4] > first)) {
      const from = x(Math.max(begin, first));
      pen.rect(from, y + 3, Math.max(0.6, x(end) - from - 0.6), 34, LOOKS[part], 2);
    }
  };
  const [host, device] = ["host", "device"].map((name) => blocks.filter(([at]) => at === name));
  lane("host", 0, host);
  lane("device", 1, told ? [...gaps(device), ...device] : device);
  lane("mended", 2, better && told ? beside(latest(better), latest(device)[0][3]) : []);
  if (!better || !told) {
    const words = told ? "nothing to mend" : "? how much shorter ?";
    pen.text((left + right) / 2, top + 2 * STRIDE + 25, words, "middle small faint bold");
  }
  const bottom = top + 3 * STRIDE;
  const text = (value) => `${value}${value ? "" : " ms"}`;
  columns(pen, ticks(0, last - first, 6), linear(0, last - first, left, right), bottom, text);
  return bottom;
}

// Where the device has nothing to do.
function gaps(device) {
  const between = device.slice(1).map((block, i) => ["device", "gap", 0, device[i][4], block[3]]);
  return between.filter(([, , , begin, end]) => end - begin > 0.05);
}

// The device's blocks, moved so that they begin at that time.
function beside(blocks, begin) {
  const own = blocks.filter(([lane]) => lane === "device");
  const by = begin - own[0][3];
  return own.map(([lane, part, step, from, to]) => [lane, part, step, from + by, to + by]);
}

function drawMarks(pen, { round, marks }, { left, right, narrow }) {
  for (let i = 0; i < ROUNDS; i++) {
    const place = left + 6 + 18 * i;
    if (i < marks.length && marks[i] !== null) {
      const [sign, hue] = marks[i] ? ["✓", "green"] : ["✗", "red"];
      pen.text(place, 15, sign, `middle bold ${hue}`);
    } else pen.dot(place, 11, 3, i === round ? "fill blue" : "fill grey soft");
  }
  if (!narrow) pen.text(right, 15, `program ${round + 1} of ${ROUNDS}`, "small faint end");
}

function inWords(state, told) {
  const { step, busy } = summary(timeline(current(state)));
  const facts = `A step takes ${step.toFixed(0)} ms; the device works ${Math.round(100 * busy)} % of it.`;
  if (!told) return `${facts} Look for gaps, where it has nothing to do.`;
  const [fault] = answer(state);
  const right = state.marks[state.round] ? "" : `The answer is “${WORDS[fault]}”. `;
  const words = `${right}${WHY[fault]}.`;
  if (fault === "none") return `${words} ${score(state.marks)}`;
  const better = stepOf(mended(fault, current(state)));
  const gain = `Mended, a step takes ${better.toFixed(0)} instead of ${step.toFixed(0)} ms.`;
  return `${words} ${gain} ${score(state.marks)}`;
}

function score(marks) {
  const right = marks.filter(Boolean).length;
  const counted = `${right} of ${marks.length} right.`;
  if (marks.length < ROUNDS) return counted;
  return `${counted} ${RANKS.find(([least]) => right >= least)[1]}`;
}

// The next program, or another game behind the last one. One without a bet has no mark.
function advance({ game, round, marks }) {
  const skipped = Array(Math.max(0, round + 1 - marks.length)).fill(null);
  if (round < ROUNDS - 1) return { round: round + 1, marks: [...marks, ...skipped] };
  return { game: game + 1, round: 0, marks: [] };
}

// One bet per program: it shows the answer, and the keys go on to the next one.
function lock(root, told, state) {
  const next = root.querySelector(".xp-next");
  for (const node of root.querySelectorAll(".xp-wager")) {
    if (told && node === document.activeElement) next.focus();
    node.disabled = told;
    node.classList.toggle("xp-answer", told && answer(state).includes(JSON.parse(node.value)));
  }
  if (told) root.querySelector(".xp-show").hidden = true;
}

function render({ el }) {
  const state = { ...OPENS };
  const frame = new Frame(el, {
    name: "read-timeline",
    ask: "What slows this program down?",
    task:
      "The host launches operators, the device works on them in order. Look for gaps in the device's " +
      "lane, where it has nothing to do: what does the host do meanwhile?",
    caption:
      "Simulated: ten programs, each with one fault drawn at random, or none, and a few steps of " +
      "each. The host runs ahead until its queue is full. Nothing here is measured: below, a " +
      "profiler draws the same lanes of one real step.",
    state,
    height: (width) => (width < TIGHT ? 310 : width < NARROW ? 268 : 238),
    draw: (pen, now, { width, narrow }) => {
      // The first bet on a program counts.
      if (frame.wager && now.marks.length === now.round) {
        now.marks = [...now.marks, frame.wager.right];
      }
      const told = now.marks.length > now.round;
      const [left, right] = [66, width - 12];
      drawMarks(pen, now, { left, right, narrow });
      const [fault] = answer(now);
      const better = fault === "none" ? null : timeline(mended(fault, current(now)));
      const area = { count: now.shown, told, left, right, top: 28 };
      const bottom = drawLanes(pen, timeline(current(now)), better, area);
      lock(frame.root, told, now);
      legend(pen, NAMED, { left, right, top: bottom + 30 });
      return inWords(now, told);
    },
  });
  frame.bet({ options: Object.entries(WORDS), answer });
  frame.slider({ name: "shown", label: "steps shown", values: steps(1, 5, 1) });
  frame.button({
    name: "next",
    text: ({ round }) => (round < ROUNDS - 1 ? "Next program" : "New game"),
    press: () => {
      frame.set(advance(state));
      frame.reopen();
    },
  });
  return () => frame.close();
}

export { program, mended, timeline, summary, savings, deal, answer, advance };
export { FAULTS, HEALTHY, OPENS, ROUNDS };
export default { render };
