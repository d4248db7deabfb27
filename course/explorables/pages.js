// 15: the memory of four gradients, page by page: filled with zeros, or freed.

const OPENS = { allocator: "back", size: 4, fault: 2, time: 0.3 };
const GRADIENTS = 4;
const [PAGE, MIB] = [4096, 2 ** 20]; // bytes
const KEPT_BELOW = 128 * 1024; // bytes: what is smaller stays with the allocator
// Bytes per second that a pass over memory moves, and whether freed memory leaves the program.
const ALLOCATORS = {
  back: { text: "leaves", speed: 10e9, leaves: true },
  keeps: { text: "stays", speed: 10e9, leaves: false },
  gpu: { text: "GPU", speed: 3e12, leaves: false },
};
const SIZES = [0.0625, 0.125, 0.25, 0.5, 1, 2, 4, 8, 16]; // MiB
const FAULTS = [0.1, 0.2, 0.5, 1, 2, 5, 10]; // microseconds
const WAYS = ["zeros", "none"];

// Whether the memory of freed gradients has left the program when the next step needs it.
function leaves({ allocator, size }) {
  return ALLOCATORS[allocator].leaves && size * MIB >= KEPT_BELOW;
}

// What the gradients of one step take: bytes moved, page faults, seconds by kind.
// zeros: write a new gradient, add it (read both, write the sum), at the end write zeros.
function account(way, state) {
  const bytes = GRADIENTS * state.size * MIB;
  const pass = bytes / ALLOCATORS[state.allocator].speed;
  const zeros = way === "zeros";
  const faults = !zeros && leaves(state) ? bytes / PAGE : 0;
  const parts = {
    fault: faults * state.fault * 1e-6,
    write: pass,
    add: zeros ? 3 * pass : 0,
    zero: zeros ? pass : 0,
  };
  return { bytes: (zeros ? 5 : 1) * bytes, faults, parts, seconds: sum(Object.values(parts)) };
}

// The way whose gradients take less time.
function answer(state) {
  const [zeros, none] = WAYS.map((way) => account(way, state).seconds);
  return [zeros < none ? "zeros" : "none"];
}

const CELLS = 16; // of a gradient, also the pages of the smallest
const ALL = GRADIENTS * CELLS;

// What is done to which cell, and when. Cells from ALL on are those of the new gradient, which is
// added to the zeros. `count`: cells of a gradient.
function events(way, state, count = CELLS) {
  const all = GRADIENTS * count;
  const { parts } = account(way, state);
  const found = [];
  let clock = 0;
  const note = (kind, cell) => {
    const begin = clock;
    clock += parts[kind] / all;
    found.push({ kind, cell, begin, end: clock });
  };
  const cells = steps(0, count - 1, 1);
  for (let first = all - count; first >= 0; first -= count) {
    if (way === "zeros") {
      cells.forEach((cell) => note("write", all + cell));
      cells.forEach((cell) => note("add", first + cell));
    } else {
      for (const cell of cells) {
        if (parts.fault) note("fault", first + cell);
        note("write", first + cell);
      }
    }
  }
  if (way === "zeros") for (let cell = 0; cell < all; cell++) note("zero", cell);
  return found;
}

// What each cell holds after so many seconds of the step: "gone", "free", "zero", "written", "add"
// while it is added to, or "fault" while its pages come again. At the end None has freed all.
function memoryAt(way, state, seconds) {
  const freed = leaves(state) ? "gone" : "free";
  const held = Array(ALL).fill(way === "zeros" ? "zero" : freed);
  if (way === "zeros") held.push(...Array(CELLS).fill("free"));
  else if (seconds >= account(way, state).seconds) return held;
  for (const { kind, cell, begin, end } of events(way, state)) {
    if (begin >= seconds) break;
    const done = { fault: "free", zero: "zero", write: "written", add: "written" }[kind];
    const shown = kind === "fault" || kind === "add";
    held[cell] = shown && end > seconds ? kind : done;
    if (kind === "add") held[ALL + (cell % CELLS)] = "free";
  }
  return held;
}

// ---------------------------------------------------------------- drawing

// The cells of the picture, fewer where there is no room: of several, the one that something is
// done to, else the first.
function merged(held, each) {
  return steps(0, held.length / each - 1, 1).map((place) => {
    const some = held.slice(each * place, each * (place + 1));
    return some.find((what) => what === "fault" || what === "add") ?? some[0];
  });
}

// The kinds of work in time: what follows at once in the same kind is one stretch.
function stretches(way, state, count = CELLS) {
  const found = [];
  for (const { kind, begin, end } of events(way, state, count)) {
    if (found.at(-1)?.kind === kind) found.at(-1).end = end;
    else found.push({ kind, begin, end });
  }
  return found;
}

const TIMES = steps(0, 1, 0.005);
const LEFT = 56; // pixels
const LANE = 34;
const BARS = 154; // the top of the bars of time
const NAMES = { zeros: "zeros", none: "None" };
const HUES = { fault: "red", write: "blue", add: "purple", zero: "grey" };
const LOOKS = {
  gone: "fill edge",
  free: "hollow grey thin",
  zero: "fill grey",
  written: "fill blue",
  fault: "fill red",
  add: "fill purple",
};
const MERGED = 4; // cells that are one below 500 pixels
const eachCell = (width) => (width < 500 ? MERGED : 1);
const LEGEND = [
  ["fill blue", "backward writes"],
  ["fill purple", "adds to the zeros"],
  ["fill grey", "zeros"],
  ["fill red", "page fault"],
  ["hollow grey thin", "free, stays"],
  ["fill edge", "left the program"],
];

const inUnit = (value, unit) => `${Number(value.toPrecision(2))} ${unit}`;
const span = (seconds) =>
  seconds < 1e-4 ? inUnit(1e6 * seconds, "µs") : inUnit(1e3 * seconds, "ms");
const sizeText = (size) => (size < 1 ? `${Math.round(1024 * size)} KiB` : `${size} MiB`);
const longest = (state) => Math.max(...WAYS.map((way) => account(way, state).seconds));

// The memory of both ways at the grey line, gradient by gradient.
function drawMemory(pen, state, { width, narrow }) {
  const group = (width - LEFT) / (GRADIENTS + 1);
  const each = eachCell(width);
  const count = CELLS / each;
  const wide = (group - 10) / count;
  for (let number = 0; number <= GRADIENTS; number++) {
    const words = number < GRADIENTS ? `${narrow ? "" : "gradient "}${number + 1}` : narrow ? "new" : "new gradient";
    pen.text(LEFT + group * number, 12, words, "small faint");
  }
  const at = state.time * longest(state);
  WAYS.forEach((way, row) => {
    const top = 22 + row * (LANE + 14);
    pen.text(LEFT - 8, top + LANE / 2 + 5, NAMES[way], "bold end");
    merged(memoryAt(way, state, at), each).forEach((what, cell) => {
      const left = LEFT + group * Math.floor(cell / count) + wide * (cell % count);
      // The outline of a hollow cell lies half outside.
      const inset = what === "free" ? 0.5 : 0;
      const [across, high] = [wide - 2 - 2 * inset, LANE - 2 * inset];
      pen.rect(left + inset, top + inset, across, high, LOOKS[what], 2);
    });
  });
}

const scale = (state, width) => linear(0, longest(state), LEFT, width - 66);

// What each way spends its time on, once that may be seen; returns the place of the present moment.
function drawTime(pen, state, { width, narrow, revealed }) {
  const x = scale(state, width);
  const pages = ((state.size * MIB) / PAGE / CELLS) * eachCell(width);
  const cell = `a cell: ${pages} ${pages === 1 ? "page" : "pages"}`;
  const line = narrow ? "below: time" : "below: time; the cells show the memory at the grey line";
  const words = `${cell}; ${line}`;
  pen.text(LEFT, BARS - 14, words, "small faint");
  WAYS.forEach((way, row) => {
    const { seconds } = account(way, state);
    const top = BARS + row * (LANE - 6);
    pen.text(LEFT - 8, top + 15, NAMES[way], "bold end");
    if (!revealed) {
      pen.text(width - 8, top + 15, "? how long ?", "small faint bold end");
      return;
    }
    for (const { kind, begin, end } of stretches(way, state, CELLS / eachCell(width))) {
      pen.rect(x(begin), top, x(end) - x(begin), LANE - 14, `fill ${HUES[kind]}`);
    }
    pen.text(x(seconds) + 8, top + 15, span(seconds), "bold");
  });
  const at = x(state.time * longest(state));
  const bottom = BARS + 2 * LANE - 4;
  pen.line(at, BARS - 8, at, bottom, "faint");
  legend(pen, LEGEND, { left: LEFT, right: width, top: bottom + 20 });
  return [at, bottom];
}

function inWords(state) {
  const [zeros, none] = WAYS.map((way) => account(way, state));
  const passes = `four more passes of zeros take ${span(zeros.seconds - zeros.parts.write)}`;
  const apart = zeros.seconds - none.seconds;
  const by = `by ${span(Math.abs(apart))} per step`;
  const winner = apart > 0 ? `★ None wins ${by}.` : `Zeros win ${by}. Can you make None win?`;
  if (!none.faults) return `Freed memory stays, so no page fault; ${passes}. ${winner}`;
  const count = none.faults.toLocaleString("en");
  return `${count} page faults take ${span(none.parts.fault)}, ${passes}. ${winner}`;
}

function render({ el }) {
  const state = { ...OPENS };
  const grips = {};
  const frame = new Frame(el, {
    name: "pages",
    ask: "Which step takes less time: with zeros, or with None?",
    task: "Press Play: dark orange cells are page faults. Then make the other win: there are four ways.",
    caption:
      "Simulated: backward writes four gradients, one after the other; with zeros, each is new " +
      "memory that is then added. The optimizer's part is left out. Gradients of less than 128 KiB stay with the program; real allocators have more " +
      "rules. A pass over memory moves 10 GB per second, on a GPU 3,000. " +
      "Nothing here is measured; the panel below measures.",
    state,
    height: (width) => BARS + (width < NARROW ? 160 : 108),
    draw: (pen, now, size) => {
      drawMemory(pen, now, size);
      grips.time?.(...drawTime(pen, now, size));
      return inWords(now);
    },
  });
  const text = (fault) => `${fault} µs`;
  const bets = { ...NAMES, neither: "neither" };
  frame.bet({ options: Object.entries(bets), answer });
  const options = Object.entries(ALLOCATORS).map(([name, each]) => [name, each.text]);
  frame.choice({ name: "allocator", label: "freed memory", options });
  frame.slider({ name: "size", label: "a gradient has", values: SIZES, text: sizeText });
  frame.slider({ name: "fault", label: "a page fault takes", values: FAULTS, text });
  frame.player({ name: "time", values: TIMES, seconds: 9 });
  grips.time = frame.grip({
    name: "time",
    label: "time in the step",
    look: "dark",
    values: TIMES,
    text: (time) => `${Math.round(100 * time)} % of the longer step`,
    from: (x) => scale(state, frame.size().width).back(x) / longest(state),
  });
  return () => frame.close();
}

export { account, ALLOCATORS, answer, events, FAULTS, inWords, memoryAt, merged, OPENS, stretches };
export default { render };
