// 24: a softmax in tiles that are forgotten, and the tile that moves the fewest numbers.

const [TOP, HIGH] = [30, 118]; // pixels: where the scores begin, and their height
const [LOW, MOST] = [-5, 9]; // the scores' axis, around their level
const STRIP = 34;
const LEVELS = steps(0, 200, 20);
const LATES = steps(-4, 8, 0.5);

function places({ width, narrow }) {
  const left = narrow ? 38 : 44;
  const row = { left, right: narrow ? width - 6 : Math.round(width * 0.6), top: TOP };
  row.bottom = row.top + HIGH;
  const strip = { ...row, top: row.bottom + 38, bottom: row.bottom + 38 + STRIP };
  const kept = { ...row, top: strip.bottom + 40, bottom: strip.bottom + 118 };
  const side = narrow ? 150 : 184;
  const from = narrow ? left : row.right + 48;
  const table = { left: from, top: narrow ? kept.bottom + 66 : TOP, side };
  const right = width - 6;
  const beside = narrow && width > 330;
  const bars = beside
    ? { left: from + side + 22, right, top: table.top + 16 }
    : { left: from, right, top: table.top + side + 48 };
  return { row, strip, kept, table, bars };
}

const across = ({ left, right }) => linear(0, LENGTH, left, right);
const upright = ({ top, bottom }, level) => linear(level + LOW, level + MOST, bottom, top);

// The scores of one row in tiles; those of the tiles before the newest are forgotten.
function drawRow(pen, state, { row, strip }, narrow) {
  const [x, y] = [across(row), upright(row, state.level)];
  const [now, before] = [visited(state).at(-1), visited(state).slice(0, -1)];
  const title = narrow ? "scores of one row" : "scores of one row, in tiles: click one";
  pen.text(row.left, row.top - 12, title, "small faint");
  rows(pen, [state.level - 4, state.level, state.level + 4], y, row.left, row.right);
  for (let tile = 0; tile < tilesOf(state); tile++) {
    const forgotten = before.includes(tile) && state.keep !== "scores";
    const look = tile === now ? "fill orange" : forgotten ? "fill edge" : "fill blue";
    const columns = columnsOf(state, tile);
    for (const column of columns) {
      const top = clamp(y(scoreOf(state, column)), row.top, row.bottom);
      pen.rect(x(column) + 1, top, x(1) - x(0) - 2, row.bottom - top, look);
    }
    if (tile) pen.line(x(columns[0]), row.top, x(columns[0]), strip.bottom, "hair");
    const middle = (x(columns[0]) + x(columns[0] + state.columns)) / 2;
    const step = state.order.indexOf(tile) + 1;
    if (step <= state.seen && state.columns > 1) {
      pen.text(middle, row.bottom + 15, step, "small faint middle");
    }
  }
  const { maximum } = collected(state);
  if (state.keep === "maximum" && state.seen) {
    pen.line(row.left, y(maximum), row.right, y(maximum), "dash");
    pen.text(row.left + 4, y(maximum) - 5, `maximum so far ${shown(maximum)}`, "small bold");
  }
  if (!narrow) pen.text(x(LATE) - 10, y(scoreOf(state, LATE)) + 4, "drag", "small faint end");
  drawValues(pen, strip, x);
}

// Each token's value: the result is their mean, weighted by e^score.
function drawValues(pen, strip, x) {
  const y = linear(-1, 1, strip.bottom, strip.top);
  pen.text(strip.left, strip.top - 6, "their values, −1 to 1", "small faint");
  pen.line(strip.left, y(0), strip.right, y(0), "hair");
  VALUES.forEach((value, column) => {
    const [top, bottom] = [Math.max(y(value), y(0)), Math.min(y(value), y(0))];
    pen.rect(x(column) + 1, bottom, x(1) - x(0) - 2, top - bottom, "fill green half");
  });
}

// The sum as a bar with a part for each tile, and the output on its axis.
function drawKept(pen, state, { left, right, top, bottom }, narrow) {
  const { parts, total } = collected(state);
  const from = left + (narrow ? 66 : 92);
  pen.text(left, top - 12, "kept for this row", "small faint");
  const sums = ["sum", "maximum"].includes(state.keep);
  pen.text(left, top + 14, "sum", sums ? "" : "faint");
  const end = right - 52;
  if (!sums) pen.text(from, top + 14, "not kept", "small faint");
  else if (!Number.isFinite(total)) pen.rect(from, top, end - from, 18, "fill red", 2);
  else {
    // Below the largest sum that there can be; without the maximum, of terms up to e^8.
    const x = linear(0, Math.max(8, 1.1 * total), from, end);
    let so = 0;
    parts.forEach((part, i) => {
      const look = i === parts.length - 1 ? "fill orange" : `fill sky${i % 2 ? " half" : ""}`;
      pen.rect(x(so), top, x(so + part) - x(so), 18, look);
      so += part;
    });
  }
  if (sums) pen.text(right, top + 14, shown(total), "bold end");
  drawResult(pen, state, { from, left, right, end, bottom });
}

function drawResult(pen, state, { from, left, right, end, bottom }) {
  const [x, y] = [linear(-1, 1, from, end), bottom - 26];
  pen.text(left, y + 5, "result");
  pen.text(from, y - 7, "−1", "small faint");
  pen.text(end, y - 7, "1", "small faint end");
  pen.line(from, y, end, y, "hair");
  if (!state.seen) return;
  const [now, exact] = [result(state), truth(state)];
  const look = isRight(state) ? "green" : "red";
  pen.dot(x(exact), y, 8, "line grey");
  pen.dot(x(clamp(Number.isNaN(now) ? 1 : now, -1, 1)), y, 5, `fill ${look}`);
  pen.text(right, y + 5, shown(now), "bold end");
  const entries = [[`line grey`, `right: ${shown(exact)}`, "dot"]];
  entries.push([`fill ${look}`, isRight(state) ? "yours: right" : "yours: wrong", "dot"]);
  legend(pen, entries, { left: from, right, top: bottom - 6 });
}

// The table of all scores: the tile of now, and those that were forgotten.
function drawTable(pen, state, { left, top, side }) {
  const each = side / LENGTH;
  pen.text(left, top - 12, `table of ${LENGTH} × ${LENGTH} scores`, "small faint");
  pen.rect(left, top, side, side, "fill edge");
  const first = LENGTH - state.rows;
  visited(state).forEach((tile, i, all) => {
    const place = [left + each * tile * state.columns, top + each * first];
    const look = i === all.length - 1 ? "fill orange" : "fill grey half";
    pen.rect(...place, each * state.columns, each * state.rows, look);
  });
  for (let row = 0; row <= LENGTH; row += state.rows) {
    pen.line(left, top + each * row, left + side, top + each * row, "paper thin");
  }
  for (let column = 0; column <= LENGTH; column += state.columns) {
    pen.line(left + each * column, top, left + each * column, top + side, "paper thin");
  }
  pen.rect(left, top + each * first, side, each * state.rows, "line blue");
}

// Numbers moved, beside the table's, and the room that the tile needs.
function drawBars(pen, state, { left, right, top }, narrow) {
  const most = Math.max(TABLE, moved(state.rows));
  const own = need(state.rows, state.columns);
  const names = ["the table moves", "your tiles move", `a tile needs (room: ${ROOM})`];
  const short = ["table moves", "tiles move", `needs, of ${ROOM}`];
  const bars = [
    [TABLE, most, "grey"],
    [moved(state.rows), most, medal(state) ? "blue" : "red"],
    [own, Math.max(ROOM, own), fits(state) ? "sky" : "red"],
  ];
  bars.forEach(([value, full, hue], i) => {
    const y = top + 40 * i;
    pen.text(left, y, (narrow ? short : names)[i], "small faint");
    pen.text(right, y, count(value), "bold end");
    pen.rect(left, y + 6, ((right - left) * value) / full, 10, `fill ${hue}`, 2);
  });
}

// A button over each tile, which visits it next. The arrow keys move from one to the next.
function tileButtons(frame, state) {
  const row = html("div", "tiles", frame.stage);
  frame.adopt(row, "tiles");
  row.setAttribute("role", "group");
  const visit = (tile) => {
    const before = state.seen === tilesOf(state) ? [] : visited(state);
    if (before.includes(tile)) return;
    const rest = state.order.filter((other) => other !== tile && !before.includes(other));
    frame.set({ order: [...before, tile, ...rest], seen: before.length + 1 });
  };
  row.addEventListener("keydown", (event) => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!move) return;
    const all = [...row.children];
    all[clamp(all.indexOf(event.target) + move, 0, all.length - 1)].focus();
    event.preventDefault();
  });
  return ({ row: area, strip }) => {
    if (row.children.length !== tilesOf(state)) row.replaceChildren();
    for (let tile = row.children.length; tile < tilesOf(state); tile++) {
      const node = html("button", "tile", row);
      node.type = "button";
      node.style.cssText = "position: absolute; padding: 0; border: 0; background: none";
      frame.adopt(node, `tile ${tile + 1}`);
      node.addEventListener("click", () => visit(tile));
    }
    const wide = ((area.right - area.left) * state.columns) / LENGTH;
    [...row.children].forEach((node, tile) => {
      const sizes = { left: area.left + wide * tile, top: area.top, width: wide };
      sizes.height = strip.bottom - area.top;
      for (const [name, size] of Object.entries(sizes)) node.style[name] = `${size}px`;
    });
  };
}

function render({ el }) {
  const state = { ...OPENS };
  let area, put, place;
  const frame = new Frame(el, {
    name: "running-softmax",
    ask: "Each tile of scores is forgotten after its visit. What is the least that must be kept?",
    task:
      "Play it, and drag the late score. Then beat the table: find the tile that moves the " +
      "fewest numbers.",
    caption: CAPTION,
    state,
    height: (width) => {
      const { bars, table } = places({ width, narrow: width < NARROW });
      return Math.max(bars.top + 106, table.top + table.side + 8);
    },
    draw: (pen, now, size) => {
      area = places(size);
      drawRow(pen, now, area, size.narrow);
      drawKept(pen, now, area.kept, size.narrow);
      drawTable(pen, now, area.table);
      drawBars(pen, now, area.bars, size.narrow);
      const y = upright(area.row, now.level)(now.level + now.late);
      put?.(across(area.row)(LATE + 0.5), y);
      place?.(area);
      return inWords(now);
    },
  });
  const film = { name: "seen", seconds: 3, get values() { return steps(0, tilesOf(state), 1); } };
  const play = (keep) => ({ keep, seen: tilesOf(state) });
  frame.bet({ name: "keep", options: Object.entries(KEEPS), answer, play, film });
  const again = (changes) => frame.set({ ...changes, seen: tilesOf({ ...state, ...changes }) });
  const keeps = Object.entries({ ...KEEPS, maximum: "all three" });
  frame.menu({ name: "keep", label: "kept of a row", options: keeps });
  const level = { label: "scores around", values: LEVELS };
  frame.slider({ name: "level", ...level, change: (now) => again({ level: now }) });
  const rows = { label: "rows of a tile", values: SIDES };
  frame.slider({ name: "rows", ...rows, change: (now) => again({ rows: now }) });
  frame.slider({
    name: "columns",
    label: "columns of a tile",
    values: SIDES,
    change: (columns) => again({ columns, order: steps(0, LENGTH / columns - 1, 1) }),
  });
  frame.player(film);
  place = tileButtons(frame, state);
  put = frame.grip({
    name: "late",
    label: "a late score",
    values: LATES,
    text: (late) => String(state.level + late),
    from: (x, y) => upright(area.row, state.level).back(y) - state.level,
    look: "dark",
  });
  return () => frame.close();
}

const CAPTION =
  "Simulated, in fp32: one query and 32 keys. The result is the mean of the values, weighted by " +
  "e^score. Tiles lie in fast memory, all else in slow memory; a query, a key and a value have 8 " +
  "numbers. The table moves four times: written, read, written, read. Tiles read keys and values " +
  "once for each block of rows. Nothing here is measured; the panel below measures.";

export { answer, collected, fits, goals, isRight, medal, moved, need, result, truth, visited };
export { KEEPS, LENGTH, OPENS, ROOM, SCORES, SIDES, TABLE, VALUES, WIDTH };
export default { render };
