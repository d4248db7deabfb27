// Pictures where there is less room than they were drawn for: laid out anew for the pixels that
// there are. What is drawn is squeezed, and words, marks and heights keep their size. Words that
// would meet go to a line of their own, and of numbers along a plot some are left out.

const ENOUGH = 560;
// The size of words, the height of a line, and the room between two words, in pixels.
const [LETTERS, LINE, GAP] = [12, 18, 8];
// What is no larger is a mark, such as the box of a legend.
const MARK = 26;
// A number along a plot has no more letters.
const SHORT = 12;

const numberOf = (node, name) => Number(node.getAttribute(name));
const isMark = ({ width, height }) => width <= MARK && height <= MARK;

// A rectangle or path with its place; `moved` is how far a mark goes to the left.
function shapeOf(node, squeeze) {
  const box = node.getBBox();
  const middle = box.x + box.width / 2;
  return { node, box, mark: isMark(box), moved: middle * (1 - squeeze), down: 0 };
}

// Words, with the mark that stands before them, if any.
function wordsOf(node, shapes, squeeze, room) {
  const [x, y] = [numberOf(node, "x"), numberOf(node, "y")];
  const rows = fold(node, room);
  const anchor = node.getAttribute("text-anchor") ?? "start";
  const width = Math.min(room, node.getComputedTextLength());
  const before = shapes.find(({ box, mark }) => {
    const away = x - box.x - box.width;
    return mark && away >= 0 && away <= 14 && Math.abs(box.y + box.height / 2 - y + 4) < 10;
  });
  const away = before ? x - before.box.x - before.box.width : 0;
  const words = { node, y, anchor, width, away, rows, mark: before, line: 0 };
  const part = { start: 0, middle: 0.5, end: 1 }[anchor];
  const left = before ? x - before.moved : x * squeeze;
  words.left = Math.max(0, Math.min(room - width, left - part * width));
  return words;
}

// Words that are wider than the picture, in rows: one where they have room, or are a name, which
// loses its note, then its end.
function fold(node, room) {
  const wide = () => node.getComputedTextLength() > room;
  const parts = node.querySelectorAll("tspan");
  if (!wide()) return [];
  if (!parts.length) return rowsIn(node, room);
  if (parts.length > 1) parts[1].remove();
  const text = parts[0].firstChild;
  while (wide() && text.data.length > 2) text.data = `${text.data.slice(0, -2)}…`;
  return [];
}

// The rows that a text fills; of a text whose end was cut off all of it is known.
function rowsIn(node, room) {
  const whole = node.querySelector("title")?.textContent ?? node.textContent;
  const rows = [""];
  for (const word of whole.split(" ")) {
    const longer = `${rows.at(-1)} ${word}`.trim();
    node.textContent = longer;
    if (rows.at(-1) && node.getComputedTextLength() > room) rows.push(word);
    else rows[rows.length - 1] = longer;
  }
  node.textContent = whole;
  return rows;
}

const meets = (words, line) => {
  const end = words.left + words.width + GAP / 2;
  return line.some(({ left, width }) => words.left < left + width + GAP / 2 && left < end);
};

// Words within a plot: one that would lie on another goes above it.
function layWithin(row) {
  row.forEach((words, i) => {
    if (meets(words, row.slice(0, i))) words.line = -1;
  });
}

// Lays the words of one height out, in as many lines as they need; how many more that are.
function layOut(row, room) {
  const lines = [[]];
  for (const words of row) {
    const number = words.anchor === "middle" && words.node.textContent.length <= SHORT;
    while (meets(words, lines[words.line])) {
      if (number) break;
      words.line += 1;
      lines[words.line] ??= [];
      if (words.mark) follow(words, lines[words.line], room);
    }
    words.gone = meets(words, lines[words.line]);
    if (!words.gone) lines[words.line].push(words);
  }
  return Math.max(...row.map(({ line, rows }) => line + Math.max(0, rows.length - 1)));
}

// In a new line the entries of a legend follow each other.
function follow(words, line, room) {
  const end = Math.max(0, ...line.map(({ left, width }) => left + width + GAP));
  const wide = words.mark.box.width + words.away;
  words.left = Math.max(0, Math.min(end + wide, room - words.width));
  words.mark.moved = words.mark.box.x - (words.left - wide);
}

function moveShape({ node, mark, moved, down }, squeeze) {
  const across = mark ? (x) => x - moved : (x) => x * squeeze;
  if (node.tagName === "rect") {
    node.setAttribute("x", across(numberOf(node, "x")));
    node.setAttribute("y", numberOf(node, "y") + down);
    if (!mark) node.setAttribute("width", numberOf(node, "width") * squeeze);
    return;
  }
  const place = (_, letter, x, y) => `${letter}${across(Number(x))} ${Number(y) + down}`;
  const d = node.getAttribute("d").replace(/([ML])(-?[\d.]+) (-?[\d.]+)/g, place);
  node.setAttribute("d", d);
}

function moveWords({ node, y, anchor, left, width, rows, line, gone, down }) {
  if (gone) return node.remove();
  const x = left + { start: 0, middle: 0.5, end: 1 }[anchor] * width;
  node.setAttribute("x", x);
  node.setAttribute("y", y + line * LINE + down);
  if (rows.length < 2) return;
  node.replaceChildren(...rows.map((words, i) => {
    const row = document.createElementNS(node.namespaceURI, "tspan");
    Object.entries({ x, dy: i && LINE }).forEach(([name, value]) => row.setAttribute(name, value));
    row.textContent = words;
    return row;
  }));
}

// Words of one height, in the order in which they are drawn.
function rowsOf(words) {
  const rows = new Map();
  for (const each of words) {
    const near = [...rows.keys()].find((y) => Math.abs(y - each.y) < 4) ?? each.y;
    rows.set(near, [...(rows.get(near) ?? []), each]);
  }
  return [...rows];
}

// Lays a picture of labkit's out anew that has so many pixels; one with enough stays as it is.
function layNarrow(picture, room) {
  const [, , drawn, height] = picture.getAttribute("viewBox").split(" ").map(Number);
  if (!room || room >= ENOUGH || drawn <= room) return;
  const squeeze = room / drawn;
  picture.style.fontSize = `${LETTERS}px`;
  picture.setAttribute("viewBox", `0 0 ${room} ${height}`);
  const nodes = [...picture.children];
  const shapes = nodes.filter((n) => n.matches("rect, path")).map((n) => shapeOf(n, squeeze));
  const texts = nodes.filter((n) => n.matches("text"));
  const words = texts.map((node) => wordsOf(node, shapes, squeeze, room));
  // A line within a plot would tear it apart.
  const plots = shapes.filter(({ box, node }) => box.height > 40 && node.matches(".k-field"));
  const added = [];
  for (const [y, row] of rowsOf(words)) {
    const within = plots.some(({ box }) => box.y < y && y < box.y + box.height);
    if (within) layWithin(row);
    const more = within ? 0 : layOut(row, room);
    for (const each of row) if (each.mark) each.mark.down = each.line * LINE;
    if (more) added.push([y, more * LINE]);
  }
  const above = (y) => added.reduce((sum, [at, more]) => sum + (at < y ? more : 0), 0);
  for (const each of words) moveWords({ ...each, down: above(each.y - 3) });
  for (const shape of shapes) {
    shape.down += above(shape.box.y + 2);
    moveShape(shape, squeeze);
  }
  picture.setAttribute("viewBox", `0 0 ${room} ${height + above(Infinity)}`);
}
