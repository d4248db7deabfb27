// 24: a row of scores in tiles that are forgotten, and how many numbers tiles of a table move.

const [LENGTH, WIDTH] = [32, 8]; // tokens; numbers of a query, of a key and of a value
const ROOM = 360; // numbers for which fast memory has room
const LATE = 29; // the score that can be dragged, in the last tiles
const SIDES = [1, 2, 4, 8, 16, 32];
const KEEPS = {
  output: "the output",
  sum: "output and sum",
  maximum: "output, sum, maximum",
  scores: "all scores",
};
const OPENS = {
  ...{ keep: "output", level: 100, late: 4, rows: 2, columns: 4 },
  ...{ order: steps(0, LENGTH / 4 - 1, 1), seen: 0 },
};

const draw = uniform(24);
const SCORES = steps(1, LENGTH, 1).map(() => Number((1.4 * normal(draw)).toFixed(2)));
const VALUES = steps(1, LENGTH, 1).map(() => Number((2 * draw() - 1).toFixed(2)));

const fp32 = Math.fround;
const tilesOf = ({ columns }) => LENGTH / columns;
const scoreOf = (state, column) => state.level + (column === LATE ? state.late : SCORES[column]);
const columnsOf = ({ columns }, tile) => steps(tile * columns, (tile + 1) * columns - 1, 1);
const visited = ({ order, seen }) => order.slice(0, seen);

// What is collected over the visited tiles, in fp32: the maximum, the sum of the weights
// e^(score - maximum), and of weight times value; `parts`: what each tile has in the sum; `shrunk`:
// the factors by which a larger maximum shrank what was there. Without the maximum it is 0.
function collected(state) {
  const keeps = state.keep === "maximum";
  let [maximum, output] = [keeps ? -Infinity : 0, 0];
  let [parts, shrunk] = [[], []];
  for (const tile of visited(state)) {
    const scores = columnsOf(state, tile).map((column) => scoreOf(state, column));
    const top = keeps ? Math.max(maximum, ...scores) : 0;
    const factor = keeps && parts.length ? fp32(Math.exp(maximum - top)) : 1;
    const weights = scores.map((score) => fp32(Math.exp(score - top)));
    const values = columnsOf(state, tile).map((column) => VALUES[column]);
    const part = fp32(sum(weights));
    parts = [...parts.map((before) => fp32(factor * before)), part];
    output = fp32(factor * output + sum(weights.map((weight, i) => weight * values[i])));
    if (factor < 1) shrunk = [...shrunk, { tile, factor }];
    maximum = top;
  }
  return { maximum, output, parts, total: fp32(sum(parts)), shrunk };
}

// The mean of the values of the visited tiles, weighted by the softmax of their scores.
function truth(state) {
  const columns = visited(state).flatMap((tile) => columnsOf(state, tile));
  const scores = columns.map((column) => scoreOf(state, column));
  const top = Math.max(...scores);
  const weights = scores.map((score) => Math.exp(score - top));
  return sum(weights.map((weight, i) => weight * VALUES[columns[i]])) / sum(weights);
}

// What can be told at the end by what was kept: without the sum nobody can divide.
function result(state) {
  const { output, total } = collected(state);
  if (state.keep === "scores") return truth(state);
  return state.keep === "output" ? output : output / total;
}

const isRight = (state) => Math.abs(result(state) - truth(state)) < 1e-3;

// The least that has to be kept for a right result once all tiles have been visited.
function answer(state) {
  const all = { ...state, seen: tilesOf(state) };
  return Object.keys(KEEPS).filter((keep) => isRight({ ...all, keep })).slice(0, 1);
}

// ---------------------------------------------------------------- the game: numbers moved

// Between slow and fast memory. Queries and outputs once, keys and values for each block of rows.
const moved = (rows) => 2 * LENGTH * WIDTH * (1 + LENGTH / rows);
// The scores are written, read by softmax, written as weights, read again for the output.
const TABLE = 4 * LENGTH * WIDTH + 4 * LENGTH * LENGTH;

// Numbers that lie in fast memory at once: queries and outputs of the rows, keys and values of the
// columns, the tile's scores, and a maximum and a sum for each row.
const need = (rows, columns) => 2 * WIDTH * (rows + columns) + rows * columns + 2 * rows;
const fits = ({ rows, columns }) => need(rows, columns) <= ROOM;

// The fewest numbers that a tile can move which has room; a square one, and any.
function goals() {
  const pairs = SIDES.flatMap((rows) => SIDES.map((columns) => ({ rows, columns }))).filter(fits);
  const least = (tiles) => Math.min(...tiles.map(({ rows }) => moved(rows)));
  const square = pairs.filter(({ rows, columns }) => rows === columns);
  return { table: TABLE, square: least(square), best: least(pairs) };
}

function medal(state) {
  const { table, square, best } = goals();
  const now = moved(state.rows);
  if (!fits(state) || now >= table) return "";
  if (now === best) return "gold";
  return now <= square ? "silver" : "bronze";
}

// ---------------------------------------------------------------- in words

const shown = (value) => {
  if (Number.isNaN(value)) return "nan";
  const sign = value < 0 ? "−" : "";
  const size = Math.abs(value);
  if (size === Infinity) return `${sign}inf`;
  return sign + (size < 1000 ? size.toFixed(2) : size.toExponential(1));
};
const count = (number) => number.toLocaleString("en");

const sentences = (...parts) => parts.filter(Boolean).join(" ");

function inWords(state) {
  if (!state.seen) return "Click a tile, or press Play.";
  return sentences(kept(state), shrunk(state), score(state));
}

function kept(state) {
  const now = shown(result(state));
  const beyond = "The sum of e^score is beyond fp32's largest number";
  if (state.keep === "scores") {
    return `The result is ${now}, but no score was forgotten: that is the table.`;
  }
  if (isRight(state)) return `The result is ${now}, as without tiles.`;
  if (state.keep === "output") {
    return `The output alone is ${now}: nobody knows by what to divide it.`;
  }
  return `${beyond}: inf / inf is nan.`;
}

function shrunk(state) {
  const last = collected(state).shrunk.at(-1);
  if (!last) return "";
  const step = state.order.indexOf(last.tile) + 1;
  const part = `${Number((100 * last.factor).toPrecision(2))} %`;
  return `Step ${step} brought a larger maximum: what was there shrank to ${part}.`;
}

function score(state) {
  if (!isRight(state)) return "";
  const { table, square, best } = goals();
  const now = `${count(moved(state.rows))} numbers moved`;
  if (!fits(state)) return "Fast memory has no room for this tile.";
  switch (medal(state)) {
    case "gold":
      return `★ Gold: ${now}, the fewest for which there is room.`;
    case "silver":
      return `${now}: silver. To beat: ${count(moved(state.rows))}, by a tile that is no square.`;
    case "bronze":
      return `${now}: bronze. Silver: ${count(square)}, gold: ${count(best)}.`;
    default:
      return `${now}. To beat: ${count(table)}, the table's.`;
  }
}
