// 17: a hunt for the faulty one of eight boxes, with tools that have their price: the drawing.

const MEANS = {
  outputs: "looks at each box's result, one step",
  once: "looks for nan in the backward pass",
  always: "the same, on from the beginning",
  gradcheck: "is each gradient the right slope?",
  profiler: "how long each box takes, one step",
};
const CHART = { top: 26, height: 84 }; // pixels
const LINE = 17;
const FOUND = "small middle bold on";

// ---------------------------------------------------------------- places

function places({ width, narrow }) {
  const chart = CHART.top + (narrow ? 2 * LINE : 0);
  const top = chart + CHART.height + 34;
  const [label, price] = narrow ? [0, 0] : [Math.min(330, width - 560), 62];
  const step = narrow ? 62 : 33;
  return { left: label, right: width - price, width, narrow, chart, top, step, rows: top + 48 };
}

const cell = ({ left, right }, column) => {
  const wide = (right - left) / COLUMNS;
  return { x: left + wide * column, wide, middle: left + wide * (column + 0.5) };
};

// ---------------------------------------------------------------- drawing

// What is wrong, and which cases are solved.
function drawCase(pen, state, { width, narrow }) {
  const lines = symptom(current(state), state.round);
  const y = (i) => 15 + LINE * i;
  const told = narrow ? lines : [lines.join(" ")];
  told.forEach((line, i) => pen.text(0, y(i), line, "bold"));
  const below = y(narrow ? 2 : 0);
  for (let i = 0; i < CASES; i++) {
    const x = narrow ? 6 + 20 * i : width - 8 - 20 * (CASES - 1 - i);
    const price = state.paid[i];
    if (price === undefined) {
      const look = i === state.round ? "fill blue" : "fill grey soft";
      pen.dot(x, below - 4, 3, look);
    } else if (price === null) pen.text(x, below, "–", "middle bold grey");
    else pen.text(x, below, "✓", "middle bold green");
  }
}

// The loss by step, beside the one that it should be; below, when a tool was on.
function drawLoss(pen, state, { width, chart: top }) {
  const { fault, bad } = current(state);
  const [left, right, bottom] = [40, width - 22, top + CHART.height];
  const x = linear(0, STEPS, left, right);
  const y = linear(0, 2.4, bottom, top);
  const fall = (step, floor) => floor + (2.3 - floor) * Math.exp(-step / 2000);
  const curve = (last, floor) => {
    const at = steps(0, 80, 1).map((i) => (last * i) / 80);
    return at.map((step) => [x(step), y(fall(step, floor))]);
  };
  const end = { backward: STEPS, slow: STEPS / (1 + SLOW) }[fault] ?? bad;
  rows(pen, [0, 1, 2], y, left, right);
  const text = (step) => (step ? step.toLocaleString("en") : "step 0");
  columns(pen, ticks(0, STEPS, 4), x, bottom, text);
  pen.path(curve(STEPS, 0.3), "line grey dash thin");
  pen.path(curve(end, fault === "backward" ? 1.1 : 0.3), "line orange");
  if (["divides", "root"].includes(fault)) {
    pen.rect(x(bad), top, right - x(bad), CHART.height, "fill red soft");
    pen.text((x(bad) + right) / 2, top + 16, "nan", "small bold red middle");
  }
  pen.text(left + 44, top + 12, "loss", "small bold orange");
  const on = (from, to) => {
    pen.rect(x(from), bottom - 5, Math.max(3, x(to) - x(from)), 5, "fill purple");
  };
  if (state.used.includes("always")) {
    on(0, fine(current(state)));
    pen.text(left + 6, bottom - 10, "anomaly mode on", "small purple");
  }
  if (state.used.length) on(end - 30, end);
}

// What a mark looks like, and where there is little room.
function texts(mark) {
  if (mark === "ok") return ["✓", "✓"];
  if (mark === "nan") return ["nan", "nan"];
  if (typeof mark === "number") return [`${mark.toFixed(1)} s`, mark.toFixed(1)];
  return [mark, "✗"];
}

// A click on a box makes it the suspect.
function drawBoxes(pen, state, area, choose) {
  if (!area.narrow) pen.text(area.width, area.top + 20, "time", "small faint end");
  const guilty = solved(state) ? current(state).box : -1;
  for (const column of steps(0, LOSS, 1)) {
    const { x, wide, middle } = cell(area, column);
    const filled = { [state.chosen]: "fill blue", [guilty]: "fill green" }[column];
    const box = pen.rect(x + 3, area.top, wide - 6, 30, filled ?? "hollow grey", 5);
    const name = column === LOSS ? "loss" : column + 1;
    const text = pen.text(middle, area.top + 20, name, `middle ${filled ? "on bold" : "faint"}`);
    if (state.accused.includes(column)) {
      pen.line(x + 6, area.top + 27, x + wide - 6, area.top + 3, "red");
    }
    if (column === LOSS) continue;
    for (const node of [box, text]) {
      node.style.cursor = "pointer";
      node.addEventListener("click", () => choose(column));
    }
  }
}

// A tool's row: its name, its price, and what it shows of each column once it is used.
function drawTool(pen, state, tool, top, area) {
  const { narrow, width } = area;
  const used = state.used.includes(tool);
  const line = top + (narrow ? 12 : 14);
  pen.text(0, line, NAMES[tool], `small bold ${used ? "" : "faint"}`);
  pen.text(0, line + 13, MEANS[tool], "small faint");
  const seconds = time(price(tool, current(state)));
  pen.text(width, narrow ? line : line + 5, seconds, `small end ${used ? "bold" : "faint"}`);
  const y = top + (narrow ? 31 : 3);
  evidence(tool, current(state)).forEach((mark, column) => {
    const { x, wide, middle } = cell(area, column);
    pen.rect(x + 3, y, wide - 6, 24, "fill pale", 3);
    if (!used || mark === null) return;
    const found = column === named(tool, current(state)) || mark === "nan";
    if (found) pen.rect(x + 3, y, wide - 6, 24, "fill red", 3);
    const [words, short] = texts(mark);
    const look = found ? FOUND : mark === "ok" ? "small middle green" : "small middle";
    pen.text(middle, y + 16, narrow ? short : words, look);
  });
}

function render({ el }) {
  const state = { ...OPENS };
  const frame = new Frame(el, {
    name: "bug-hunt",
    ask: "Which tool names the faulty box soonest?",
    task: "A bet uses its tool, and you pay its time. Then choose a box, and accuse it.",
    caption:
      "Simulated: a network of eight boxes in a row, then the loss; 10,000 steps of one second, " +
      "each of which can be run again. Prices: ratios recorded on two cores of a CPU with small " +
      "layers, where a step with anomaly mode takes 12 times as long; gradcheck calls a box twice " +
      "for each of 64 random numbers. If you accuse a box that is right, you change it for " +
      "nothing, and train again until the fault shows.",
    state,
    height: (width) => {
      const { rows: top, step } = places({ width, narrow: width < NARROW });
      return top + step * TOOLS.length + 8;
    },
    draw: (pen, now, size) => {
      const area = places(size);
      drawCase(pen, now, size);
      drawLoss(pen, now, area);
      drawBoxes(pen, now, area, (chosen) => frame.set({ chosen }));
      TOOLS.forEach((tool, i) => drawTool(pen, now, tool, area.rows + area.step * i, area));
      return inWords(now);
    },
  });
  frame.bet({ options: Object.entries(NAMES), answer, play: (tool) => use(state, tool) });
  frame.slider({
    name: "chosen",
    label: "your suspect",
    values: steps(0, BOXES - 1, 1),
    text: (box) => `box ${box + 1}`,
  });
  frame.button({
    name: "accuse",
    text: ({ chosen }) => `Accuse box ${chosen + 1}`,
    press: () => frame.set(accuse(state)),
  });
  frame.button({
    name: "next",
    text: ({ round }) => (round < CASES - 1 ? "Next case" : "New game"),
    press: () => {
      frame.set(advance(state));
      frame.reopen();
    },
  });
  return () => frame.close();
}

export { accuse, advance, answer, deal, evidence, fine, inWords, least, named, par, price, shows };
export { spent, time, use, CASES, FAULTS, OPENS, TOOLS };
export default { render };
