// 01: a product of matrices, A = BC, walks over memory; a tray keeps the newest lines.

const [N, LINE] = [16, 8]; // numbers in a row of a matrix, and in a line of memory
const PRODUCTS = N ** 3;
const OPENS = { order: "tiles", tile: 4, lines: 16, stored: "rows", step: 900 };
const BETS = [2, 4, 8, 16];
// The loops from the outermost to the innermost: A[i, j] += B[i, k] * C[k, j].
const ORDERS = { element: "ijk", column: "jik", row: "ikj", tiles: "ijk" };
const TILES = steps(1, N, 1);
const STEPS = steps(0, PRODUCTS, 8);
// d2l's figures: bytes per second that the processor can use, and that memory delivers.
const [PROCESSOR, MEMORY, BYTES] = [1e12, 1e11, 8];

// The places i, j, k of all products, in the order of the loops; within tiles in order "tiles".
function walk({ order, tile }) {
  const size = order === "tiles" ? tile : N;
  const [x, y, z] = ORDERS[order];
  const tiles = TILES.slice(0, Math.ceil(N / size)).map((place) => (place - 1) * size);
  const within = (first) => steps(first, Math.min(N, first + size) - 1, 1);
  const found = [];
  for (const a of tiles) for (const b of tiles) for (const c of tiles) {
    for (const p of within(a)) for (const q of within(b)) for (const r of within(c)) {
      found.push({ [x]: p, [y]: q, [z]: r });
    }
  }
  return found;
}

// The line of memory that a number of a matrix lies in.
function lineOf(matrix, row, column, stored) {
  if (matrix === "C" && stored === "columns") return `C ${column} ${Math.floor(row / LINE)}`;
  return `${matrix} ${row} ${Math.floor(column / LINE)}`;
}

// The first `count` products. A full tray drops the line that was not used for longest. A sum is
// written to A where its element ends. `last`: the numbers of the last product.
function fetches(state, count = PRODUCTS) {
  const products = walk(state);
  const tray = new Map();
  let [lines, last] = [0, []];
  const touch = (matrix, row, column) => {
    const line = lineOf(matrix, row, column, state.stored);
    const hit = tray.delete(line);
    tray.set(line, matrix);
    if (!hit) lines += 1;
    if (tray.size > state.lines) tray.delete(tray.keys().next().value);
    last.push({ matrix, row, column, hit });
  };
  for (let n = 0; n < count; n++) {
    const { i, j, k } = products[n];
    last = [];
    touch("B", i, k);
    touch("C", k, j);
    const next = products[n + 1];
    if (next?.i !== i || next.j !== j) touch("A", i, j);
  }
  return { lines, last, tray: [...tray.keys()].reverse() };
}

// Seconds of arithmetic, and those of so many lines; the longer of them is the time.
function seconds(products, lines) {
  return [(BYTES * products) / PROCESSOR, (BYTES * LINE * lines) / MEMORY];
}

// Of the bet's tiles those that fetch the fewest lines.
function answer(state) {
  const found = BETS.map((tile) => fetches({ ...state, order: "tiles", tile }).lines);
  return BETS.filter((_, place) => found[place] === Math.min(...found));
}

const MATRICES = ["A", "B", "C"];
const HUES = { A: "faint", B: "purple", C: "blue" };
const SIGNS = ["=", "×"];
const [TOP, GAP, SLOT, ACROSS] = [22, 26, 13, 32]; // pixels; slots in a row of the tray
const NAMES = {
  element: "element by element",
  column: "column by column",
  row: "row by row",
  tiles: "in tiles",
};
const LEGEND = [
  ["fill green", "in the tray", "dot"],
  ["fill orange", "comes from memory", "dot"],
];

const nano = (time) => `${Math.round(1e9 * time).toLocaleString("en")} ns`;
const many = (count) => count.toLocaleString("en");

function places({ width, narrow }) {
  const room = narrow ? width : Math.round(width * 0.68);
  const cell = (room - 2 * GAP) / (3 * N);
  const side = N * cell;
  const lefts = MATRICES.map((_, place) => place * (side + GAP));
  const tray = TOP + side + 28;
  const below = tray + 2 * (SLOT + 3) + 8;
  const chart = narrow
    ? { left: 44, right: width, top: below + 94, bottom: below + 200 }
    : { left: lefts[2] + side + 66, right: width, top: TOP, bottom: below - 20 };
  const right = lefts[2] + side;
  return { cell, side, lefts, tray, below, chart, right };
}

// A matrix as its lines of memory; those of the tray are filled.
function drawMatrix(pen, matrix, left, held, { cell, side }, stored) {
  pen.text(left + side / 2, TOP - 8, matrix, "bold middle");
  const upright = matrix === "C" && stored === "columns";
  const [wide, high] = upright ? [1, LINE] : [LINE, 1];
  for (let row = 0; row < N; row += high) {
    for (let column = 0; column < N; column += wide) {
      const line = lineOf(matrix, row, column, stored);
      const look = held.has(line) ? `fill half ${HUES[matrix]}` : "fill edge";
      const [x, y] = [left + column * cell, TOP + row * cell];
      pen.rect(x, y, wide * cell - 1, high * cell - 1, look, 1);
    }
  }
}

function drawNumbers(pen, last, { cell, lefts }) {
  for (const { matrix, row, column, hit } of last) {
    const left = lefts[MATRICES.indexOf(matrix)];
    const [x, y] = [left + (column + 0.5) * cell, TOP + (row + 0.5) * cell];
    pen.dot(x, y, Math.max(4, 0.45 * cell), `fill ${hit ? "green" : "orange"}`);
  }
}

function drawTray(pen, tray, last, { lines }, { tray: top, right }) {
  const wide = right / ACROSS;
  pen.text(0, top - 8, `tray of ${lines} lines, the newest first`, "small faint");
  const fresh = last.filter(({ hit }) => !hit).length;
  for (let slot = 0; slot < lines; slot++) {
    const [x, y] = [wide * (slot % ACROSS), top + (SLOT + 3) * Math.floor(slot / ACROSS)];
    const line = tray[slot];
    const held = line ? `fill half ${HUES[line[0]]}` : "hollow edge thin";
    const look = slot < fresh ? "fill orange" : held;
    pen.rect(x, y, wide - 3, SLOT, look, 2);
  }
}

// The time so far, on a scale that is the same for all walks.
function drawTime(pen, products, lines, { below, right }) {
  const x = linear(0, seconds(PRODUCTS, 4864)[1], 84, right - 62);
  const [work, moved] = seconds(products, lines);
  [["arithmetic", work, "green"], ["lines", moved, "orange"]].forEach(([name, time, hue], row) => {
    pen.text(76, below + 12 + 19 * row, name, "small faint end");
    pen.rect(84, below + 2 + 19 * row, x(time) - 84, 12, `fill ${hue}`, 2);
    pen.text(x(time) + 6, below + 12 + 19 * row, nano(time), "small bold");
  });
}

// Lines of whole walks over the tiles that were tried; of the present walk, those so far.
function drawTried(pen, tried, now, state, { left, right, top, bottom }) {
  const y = logarithmic(80, 6000, bottom, top);
  const x = linear(1, N, left + 12, right - 12);
  pen.text(left - 36, top - 8, "lines fetched, tiles tried", "small faint");
  rows(pen, [100, 300, 1000, 3000], y, left, right, many);
  columns(pen, [1, 4, 8, 12, 16], x, bottom);
  pen.text(right, bottom + 33, "tile", "small faint end");
  const loop = fetches({ ...state, order: "row" }).lines;
  pen.line(left, y(loop), right, y(loop), "grey dash");
  pen.line(left, bottom + 29, left + 18, bottom + 29, "grey dash");
  pen.text(left + 24, bottom + 33, `row by row: ${many(loop)}`, "small faint");
  for (const [tile, lines] of tried) {
    const present = state.order === "tiles" && state.tile === tile;
    const high = Math.max(0, bottom - y(present ? now : lines));
    pen.rect(x(tile) - 6, bottom - high, 12, high, `fill ${present ? "orange" : "grey"}`, 2);
  }
}

// The tiles that were tried, and their lines, since the tray or the storage was last changed.
function notes() {
  let [known, tried] = ["", new Map()];
  return (state, whole) => {
    const now = `${state.lines} ${state.stored}`;
    if (now !== known) [known, tried] = [now, new Map()];
    if (state.order === "tiles") tried.set(state.tile, whole);
    return tried;
  };
}

const tileInWords = (tile) => `${tile} × ${tile}${tile === N ? ", the whole matrix" : ""}`;

function inWords(state, so, whole) {
  const { order, tile } = state;
  const called = NAMES[order][0].toUpperCase() + NAMES[order].slice(1);
  const name = order === "tiles" ? `${called} of ${tile} × ${tile}` : called;
  const [work, moved] = seconds(PRODUCTS, whole);
  const now = state.step < PRODUCTS ? `${many(so)} lines so far, ` : "";
  const least = (3 * N * N) / LINE;
  return (
    `${name}: ${now}${many(whole)} lines in the whole walk, ${nano(moved)}; the arithmetic takes ` +
    `${nano(work)}. ${reason(state)}Each line once would be ${least}.`
  );
}

function reason({ order, tile, lines, stored }) {
  if (order !== "tiles" || stored !== "rows") return "";
  const needed = tile * Math.ceil(tile / LINE);
  if (needed > lines) return `A tile's ${needed} lines of C do not fit into ${lines} places. `;
  if (tile < LINE) return `A tile uses ${tile} of the ${LINE} numbers of a line. `;
  if (tile % LINE) return "A tile ends within a line, whose rest is fetched for nothing. ";
  return `A tile uses whole lines, and its ${needed} lines of C fit into ${lines} places. `;
}

function render({ el }) {
  const state = { ...OPENS };
  const note = notes();
  const film = { name: "step", values: STEPS, seconds: 5 };
  const frame = new Frame(el, {
    name: "cache-walk",
    ask: "Which tile fetches the fewest lines: 2, 4, 8 or 16?",
    task: "A bet plays its walk. Then try the sizes between, other orders, C stored by columns.",
    caption:
      "Simulated: 16 × 16 numbers of 8 bytes, and a cache that keeps the newest lines of 64 bytes; " +
      "a real one holds thousands, in several levels. Time is the longer of arithmetic (10¹² bytes " +
      "per second) and lines (10¹¹), the figures of Dive into Deep Learning, section 12.5. " +
      "Nothing here is measured; the panel below measures.",
    state,
    height: (width) => {
      const { below, chart } = places({ width, narrow: width < NARROW });
      return Math.max(below + 66, chart.bottom + 40);
    },
    draw: (pen, now, size) => {
      const area = places(size);
      const { lines, last, tray } = fetches(now, now.step);
      const whole = fetches(now).lines;
      const held = new Set(tray);
      MATRICES.forEach((matrix, place) => {
        drawMatrix(pen, matrix, area.lefts[place], held, area, now.stored);
        const middle = area.lefts[place] + area.side + GAP / 2;
        if (place < 2) pen.text(middle, TOP + area.side / 2 + 5, SIGNS[place], "bold middle");
      });
      drawNumbers(pen, last, area);
      drawTray(pen, tray, last, now, area);
      drawTime(pen, now.step, lines, area);
      drawTried(pen, size.revealed ? note(now, whole) : [], lines, now, area.chart);
      legend(pen, LEGEND, { left: 0, right: area.right, top: area.below + 46 });
      return inWords(now, lines, whole);
    },
  });
  frame.bet({
    name: "tile",
    options: BETS.map((tile) => [tile, tileInWords(tile)]),
    answer,
    play: (tile) => ({ order: "tiles", tile, step: PRODUCTS }),
    film,
  });
  frame.menu({ name: "order", label: "order", options: Object.entries(NAMES) });
  frame.slider({ name: "tile", label: "tile", values: TILES });
  frame.slider({ name: "lines", label: "lines in the tray", values: steps(4, 64, 4) });
  const stored = ["rows", "columns"].map((name) => [name, name]);
  frame.choice({ name: "stored", label: "C is stored by", options: stored });
  frame.slider({ name: "step", label: "multiplications", values: STEPS, text: many });
  frame.player(film);
  return () => frame.close();
}

export { answer, fetches, lineOf, seconds, walk, BETS, OPENS, PRODUCTS };
export default { render };
