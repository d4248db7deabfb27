// 09: which lines of memory an operation on an image fetches, in two layouts.

const [SIDE, LINE] = [16, 16]; // pixels of a side; numbers of 4 bytes in a line of 64
const OPENS = { layout: "first", channels: 16, operation: "window", place: 102 };
const CHANNELS = [1, 2, 4, 8, 16, 32, 64];
const PLACES = steps(0, SIDE * SIDE - 1, 1);
const LAYOUTS = { first: "channels first", last: "channels last" };
const OPERATIONS = {
  window: "3 × 3 window",
  pixel: "1 × 1 window",
  mean: "channel mean",
};
const SIZES = { window: 3, pixel: 1, mean: SIDE };

// Where a number lies in memory.
function address({ layout, channels }, channel, row, column) {
  const pixel = SIDE * row + column;
  return layout === "first" ? SIDE * SIDE * channel + pixel : channels * pixel + channel;
}

// The row and the column at which the window begins.
function corner({ operation, place }) {
  const last = SIDE - SIZES[operation];
  return [Math.min(last, Math.floor(place / SIDE)), Math.min(last, place % SIDE)];
}

// The channels that are read: one by the mean, all by a window.
function channelsOf({ operation, place, channels }) {
  if (operation !== "mean") return steps(0, channels - 1, 1);
  return [Math.floor((place * channels) / (SIDE * SIDE))];
}

// The addresses that the operation reads in one place, in order; the lines they lie in; runs of
// neighbours; the share of the lines' numbers that is used.
function touched(state) {
  const [top, left] = corner(state);
  const size = SIZES[state.operation];
  const numbers = [];
  for (const channel of channelsOf(state)) {
    for (let row = top; row < top + size; row++) {
      for (let column = left; column < left + size; column++) {
        numbers.push(address(state, channel, row, column));
      }
    }
  }
  numbers.sort((a, b) => a - b);
  const lines = [...new Set(numbers.map((number) => Math.floor(number / LINE)))];
  const runs = numbers.filter((number, i) => number !== numbers[i - 1] + 1).length;
  return { numbers, lines, runs, used: numbers.length / (LINE * lines.length) };
}

// Lines in each layout.
function both(state) {
  const names = Object.keys(LAYOUTS);
  return names.map((layout) => touched({ ...state, layout }).lines.length);
}

// The operations that fetch more lines with channels last.
function answer(state) {
  const found = Object.keys(OPERATIONS).filter((operation) => {
    const [first, last] = both({ ...state, operation });
    return last > first;
  });
  return found.length ? found : ["none"];
}

// ---------------------------------------------------------------- drawing

const [TOP, SHEETS, SHIFT, HIGH] = [30, 5, 6, 256]; // pixels, but for the sheets that are drawn
const LEGEND = [
  ["fill orange half", "line that is fetched"],
  ["fill blue", "number that is used"],
  ["fill edge", "line of 16 numbers, not fetched"],
];

function places({ width, narrow }) {
  const side = narrow ? 128 : Math.min(208, 0.24 * width);
  const depth = SHIFT * SHEETS;
  const image = { left: 4, top: TOP + depth, cell: side / SIDE, side, depth };
  const foot = image.top + side;
  const aside = side + depth + 24;
  const bars = narrow
    ? { left: side + depth + 7, right: width - 34, top: TOP + 54 }
    : { left: 4, right: side + depth - 20, top: foot + 48 };
  const memory = narrow
    ? { left: 0, right: width, top: foot + 46 }
    : { left: aside + 16, right: width, top: TOP };
  const strip = memory.top + HIGH + 30;
  return { image, bars, memory, strip, bottom: strip + 24 };
}

// The sheets of the image, and what the operation reads of them; returns the window's middle.
function drawImage(pen, state, { left, top, cell, side, depth }) {
  const count = Math.min(SHEETS, state.channels - 1);
  const name = state.channels === 1 ? "1 channel" : `${state.channels} channels`;
  pen.text(left, top - depth - 12, `image, ${SIDE} × ${SIDE}, ${name}`, "small faint");
  const [row, column] = corner(state);
  const [read] = channelsOf(state);
  const size = SIZES[state.operation] * cell;
  const mean = state.operation === "mean";
  const sheet = Math.round((count * read) / Math.max(1, state.channels - 1));
  for (let back = count; back >= 0; back--) {
    const [x, y] = [left + SHIFT * back, top - SHIFT * back];
    pen.rect(x, y, side, side, "hollow grey thin");
    if (mean && back === sheet) pen.rect(x, y, side, side, "fill blue");
  }
  if (mean) return undefined;
  const [x, y] = [left + column * cell, top + row * cell];
  for (let back = count; back >= 0; back--) {
    const look = back ? "fill blue soft" : "fill blue";
    pen.rect(x + SHIFT * back, y - SHIFT * back, size, size, look);
  }
  return [x + size / 2, y + size / 2];
}

// Each line of memory as a box, row by row; in those that are fetched the numbers that are used.
function drawMemory(pen, state, { numbers, lines }, { left, right, top }) {
  const count = (SIDE * SIDE * state.channels) / LINE;
  const across = state.channels > SIDE ? 32 : 16;
  const [wide, high] = [(right - left) / across, Math.min(SIDE, (HIGH * across) / count)];
  pen.text(left, top - 12, "its memory, line by line", "small faint");
  const at = (line) => [left + wide * (line % across), top + high * Math.floor(line / across)];
  const fetched = new Set(lines);
  for (let line = 0; line < count; line++) {
    const look = fetched.has(line) ? "fill orange half" : "fill edge";
    pen.rect(...at(line), wide - 1, high - 1, look);
  }
  const one = (wide - 1) / LINE;
  for (const number of numbers) {
    const [x, y] = at(Math.floor(number / LINE));
    pen.rect(x + one * (number % LINE), y, one, high - 1, "fill blue");
  }
}

// The same memory end to end.
function drawStrip(pen, state, { lines }, { memory, strip }) {
  const count = (SIDE * SIDE * state.channels) / LINE;
  const x = linear(0, count, memory.left, memory.right);
  pen.text(memory.left, strip - 6, "the same, end to end", "small faint");
  pen.rect(memory.left, strip, memory.right - memory.left, 12, "fill edge");
  for (const line of lines) {
    pen.rect(x(line), strip, Math.max(1, x(line + 1) - x(line)), 12, "fill orange");
  }
}

// Lines in both layouts, or only in the one that is set.
function drawBars(pen, state, revealed, { left, right, top }) {
  const counts = both(state);
  const x = linear(0, Math.max(...counts), left, right);
  pen.text(left, top - 22, "lines fetched", "small faint");
  Object.entries(LAYOUTS).forEach(([layout, name], i) => {
    if (!revealed && layout !== state.layout) return;
    const y = top + 42 * i;
    pen.text(left, y, name, layout === state.layout ? "bold" : "faint");
    pen.rect(left, y + 7, x(counts[i]) - left, 12, "fill orange", 2);
    pen.text(x(counts[i]) + 6, y + 18, counts[i], "bold");
  });
}

function inWords(state) {
  const [first, last] = both(state);
  const now = touched(state);
  const share = `${now.numbers.length} numbers in ${now.runs} ${now.runs === 1 ? "run" : "runs"}`;
  const used = `${share}, ${Math.round(100 * now.used)} % of what is fetched.`;
  const counts = `${first} lines with channels first, ${last} with channels last`;
  return `${counts}: ${reason(state, first, last)} Here ${used}`;
}

function reason({ operation, channels }, first, last) {
  if (channels === 1) return "one channel lies the same in both.";
  if (first === last) return "the same.";
  if (operation === "mean") return "one channel's numbers lie apart, one in each pixel.";
  return "a pixel's channels are neighbours only in the second.";
}

// The grip moves along rows; up and down it goes to the next one.
function upAndDown(frame, state, grip) {
  const moves = { ArrowUp: -SIDE, ArrowDown: SIDE };
  const move = (event) => {
    const to = state.place + moves[event.key];
    if (!(event.key in moves)) return;
    event.stopImmediatePropagation();
    event.preventDefault();
    if (to in PLACES) frame.set({ place: to });
  };
  grip.addEventListener("keydown", move, { capture: true });
}

function render({ el }) {
  const state = { ...OPENS };
  let area, put, grip;
  const frame = new Frame(el, {
    name: "window-on-memory",
    ask: "Which operation fetches more lines with channels last than with channels first?",
    task:
      "A window reads all channels of its pixels; the channel mean, all pixels of one channel. " +
      "Press Play, or drag the window. Then change the layout.",
    caption:
      "Simulated: addresses of fp32 numbers, 4 bytes each. A processor fetches memory by lines of " +
      "64 bytes, 16 numbers. Channels first (NCHW, PyTorch's default) stores one channel after the " +
      "other; channels last (NHWC) one pixel after the other. Caches, and kernels that rearrange " +
      "numbers, are left out. Nothing here is measured; the panel below measures.",
    state,
    height: (width) => {
      const { bottom, bars } = places({ width, narrow: width < NARROW });
      return Math.max(bottom + (width < NARROW ? 40 : 20), bars.top + 70);
    },
    draw: (pen, now, size) => {
      area = places(size);
      const found = touched(now);
      const middle = drawImage(pen, now, area.image);
      drawMemory(pen, now, found, area.memory);
      drawStrip(pen, now, found, area);
      drawBars(pen, now, size.revealed, area.bars);
      legend(pen, LEGEND, { ...area.memory, top: area.bottom });
      if (grip) grip.hidden = !middle;
      if (middle) put?.(...middle);
      return inWords(now);
    },
  });
  frame.bet({
    name: "operation",
    options: [...Object.entries(OPERATIONS), ["none", "none of them"]],
    answer,
    // Whoever bets on none is shown the one that does.
    play: (bet) => ({ layout: "last", operation: bet in SIZES ? bet : answer(state)[0] }),
  });
  frame.choice({ name: "layout", label: "layout", options: Object.entries(LAYOUTS) });
  frame.menu({ name: "operation", label: "operation", options: Object.entries(OPERATIONS) });
  frame.slider({ name: "channels", label: "channels", values: CHANNELS });
  frame.player({ name: "place", values: PLACES, seconds: 8 });
  const from = (x, y) => {
    const { left, top, cell } = area.image;
    const half = SIZES[state.operation] / 2 - 0.5;
    const along = (place) => clamp(Math.floor(place / cell - half), 0, SIDE - 1);
    return SIDE * along(y - top) + along(x - left);
  };
  const text = (place) => `row ${Math.floor(place / SIDE) + 1}, column ${(place % SIDE) + 1}`;
  put = frame.grip({ name: "place", label: "window", values: PLACES, text, from, look: "dark" });
  grip = frame.root.querySelector(".xp-grip");
  upAndDown(frame, state, grip);
  return () => frame.close();
}

export { address, answer, both, touched, CHANNELS, LAYOUTS, OPENS, OPERATIONS, PLACES };
export default { render };
