// 16: array and tensor, two names for the same numbers or for a copy: a game of ten cards.

const HUES = { array: "purple", tensor: "orange" };
const LINE = 18; // pixels
const HIGH = 32; // of a cell
const RIBBON = 5;
const LEGEND = [
  ["fill purple", "the array's numbers"],
  ["fill orange", "the tensor's"],
  ["fill blue", "written"],
];

// ---------------------------------------------------------------- places

// From above: call, what it gets, the array, its memory, the tensor, its own, what both read.
function places({ width, narrow }) {
  const head = narrow ? 3 * LINE : 2 * LINE;
  const tape = head + 46;
  const tensor = tape + HIGH + RIBBON + 26;
  const own = tensor + 12;
  const reads = own + HIGH + RIBBON + 26;
  return { width, head, tape, tensor, own, reads, foot: reads + 2 * LINE };
}

const left = (cell, { width }) => (width / CELLS) * cell;

// ---------------------------------------------------------------- drawing

function drawHead(pen, state, { width, narrow }) {
  const { code, what } = current(state);
  pen.text(0, 15, code, "bold");
  pen.text(0, 15 + LINE, what, "small faint");
  const y = narrow ? 15 + 2 * LINE : 15;
  CARDS.forEach((_, i) => {
    const x = narrow ? 6 + 20 * i : width - 8 - 20 * (CARDS.length - 1 - i);
    const right = state.marks[i];
    if (right === true) pen.text(x, y, "✓", "middle bold green");
    else if (right === false) pen.text(x, y, "✗", "middle bold red");
    else pen.dot(x, y - 4, 3, i === state.card ? "fill blue" : "fill grey soft");
  });
}

// How an array or tensor finds its numbers.
function header({ start, shape, strides, header: words }) {
  if (words) return words;
  const pair = (values) => (values.length > 1 ? `(${values.join(", ")})` : values[0]);
  return `starts at cell ${start}, shape ${pair(shape)}, stride ${pair(strides)}`;
}

function drawName(pen, name, words, y) {
  const label = pen.text(0, y, name, `bold ${HUES[name]}`);
  pen.text(label.getComputedTextLength() + 8, y, words, "small faint");
}

// A memory: its numbers, and ribbons above or below those that a name reads. A click writes.
function drawMemory(pen, numbers, ribbons, top, area, write) {
  numbers.forEach((number, cell) => {
    const [x, wide] = [left(cell, area), left(1, area) - 4];
    const fresh = number === WRITTEN;
    const box = pen.rect(x, top, wide, HIGH, fresh ? "fill blue" : "fill edge", 3);
    const look = fresh ? "middle bold on" : "middle";
    const text = pen.text(x + wide / 2, top + HIGH / 2 + 5, number, look);
    for (const [y, hue, cells] of ribbons) {
      if (cells.includes(cell)) pen.rect(x, y, wide, RIBBON, `fill ${hue}`, 2);
    }
    for (const node of [box, text]) {
      node.style.cursor = "pointer";
      node.addEventListener("click", () => write(cell));
    }
  });
}

// The numbers of a name, in its own order; a gap where a row ends.
function drawReads(pen, name, numbers, { shape }, y, { width }) {
  pen.text(0, y, `${name} reads`, `small bold ${HUES[name]}`);
  const row = shape.at(-1);
  const begin = 100;
  const pitch = Math.min(30, (width - begin) / (numbers.length + numbers.length / row - 1));
  numbers.forEach((number, i) => {
    const x = begin + pitch * (i + Math.floor(i / row));
    const fresh = number === WRITTEN;
    pen.text(x, y, number, fresh ? "small middle bold blue" : "small middle");
  });
}

// Where a second memory would be.
function drawNone(pen, words, { own, width }) {
  pen.rect(1, own, width - 6, HIGH, "line grey dash thin", 3);
  pen.text(12, own + HIGH / 2 + 4, words, "small faint");
}

function drawTensor(pen, state, now, area, write) {
  const card = current(state);
  if (card.fate === "error") {
    pen.text(0, area.tensor, "no tensor", "bold red");
    return drawNone(pen, "ValueError", area);
  }
  drawReads(pen, "tensor", now.tensor, card, area.reads + LINE, area);
  if (card.fate === "shared") {
    const where = area.width < NARROW ? "" : `: ${header(card)}`;
    drawName(pen, "tensor", `in the array's memory${where}`, area.tensor);
    return drawNone(pen, "no memory of its own", area);
  }
  drawName(pen, "tensor", "in memory of its own", area.tensor);
  const ribbon = [area.own + HIGH + 2, HUES.tensor, steps(0, CELLS - 1, 1)];
  drawMemory(pen, now.own, [ribbon], area.own, area, write);
}

function render({ el }) {
  const state = { ...OPENS };
  const writeAs = (by) => (cell) => frame.set({ by, cell });
  const frame = new Frame(el, {
    name: "two-names",
    ask: "Does the tensor share the array's memory, is it a copy, or is the call an error?",
    task: "Ten calls. Bet on each, then write into a cell, as the array or as the tensor.",
    caption:
      "Simulated: a has the numbers 0 to 11 in float32, in 12 cells of memory. A name knows " +
      "where its numbers start, how many there are (shape), and how many cells lie from one to " +
      "the next (stride). Each card is tested against PyTorch itself. Nothing here is measured; " +
      "the panel below measures.",
    state,
    height: (width) => places({ width, narrow: width < NARROW }).foot + 18,
    draw: (pen, now, size) => {
      const area = places(size);
      const card = current(now);
      const found = memory(now);
      const cells = cellsOf(card);
      const ribbons = [[area.tape - RIBBON - 2, HUES.array, cells]];
      if (size.revealed && card.fate === "shared") {
        ribbons.push([area.tape + HIGH + 2, HUES.tensor, cells]);
      }
      drawHead(pen, now, size);
      drawName(pen, "array", header(card), area.head + 28);
      drawMemory(pen, found.tape, ribbons, area.tape, area, writeAs("array"));
      if (size.revealed) drawTensor(pen, now, found, area, writeAs("tensor"));
      else {
        drawName(pen, "tensor", "in which memory?", area.tensor);
        drawNone(pen, "?", area);
      }
      drawReads(pen, "array", found.array, card, area.reads, area);
      legend(pen, LEGEND, { left: 0, right: size.width, top: area.foot });
      return inWords(now);
    },
  });
  frame.bet({
    options: Object.entries(FATES),
    answer,
    play: (fate) => mark(state, answer(state).includes(fate), frame.moved),
  });
  frame.slider({
    name: "cell",
    label: `write ${WRITTEN} into`,
    values: steps(NONE, CELLS - 1, 1),
    text: (cell) => (cell === NONE ? "no cell yet" : `cell ${cell}`),
  });
  const names = Object.keys(HUES).map((name) => [name, `the ${name}`]);
  frame.choice({ name: "by", label: "written as", options: names });
  frame.button({
    name: "next",
    text: ({ card }) => (card < CARDS.length - 1 ? "Next card" : "New game"),
    press: () => {
      frame.set(advance(state));
      frame.reopen();
    },
  });
  return () => frame.close();
}

export { advance, answer, cellsOf, effect, inWords, mark, memory, score };
export { CARDS, FATES, OPENS };
export default { render };
