// 12: a network to be cut into pieces, and the plans of four searches to beat.

const NAMES = { keep: "keep all", root: "√n equal", grid: "grid", genetic: "genetic", exact: "exact" };
const DOTS = { keep: "grey", root: "blue", grid: "green", genetic: "purple", exact: "red" };
const BARS = { top: 26, height: 92 }; // pixels
const ROW = 17;
const LAST = 10; // generation

function places({ width, narrow }) {
  const top = BARS.top + BARS.height + 48;
  if (narrow) {
    const right = width - 8;
    return {
      saw: { left: 36, right, top, bottom: top + 150 },
      board: { left: 36, right, top: top + 244 },
      plans: { left: 36, right, top: top + 392, bottom: top + 502 },
    };
  }
  const split = Math.round(width * 0.6);
  return {
    saw: { left: 40, right: split, top, bottom: top + 190 },
    board: { left: split + 56, right: width - 10, top: 12 },
    plans: { left: split + 56, right: width - 10, top: top + 12, bottom: top + 190 },
  };
}

const across = ({ left, right }, level) => linear(0, lengthOf(level), left, right);
// A bar per block: what it saves, its top what it hands on.
function drawBlocks(pen, { level }, pieces, area, narrow) {
  const { saved, outputs } = LEVELS[level];
  const [x, bottom] = [across(area, level), BARS.top + BARS.height];
  const y = linear(0, Math.max(...saved), bottom, BARS.top);
  pen.text(area.left, 12, narrow ? "what blocks save" : "what each block saves", "small faint");
  const left = area.left + (narrow ? 104 : 150);
  legend(pen, [["fill orange", "handed on"]], { left, right: 999, top: 3 });
  const red = worst(pieces);
  saved.forEach((size, block) => {
    const [left, wide] = [x(block) + 3, x(block + 1) - x(block) - 6];
    const hue = block >= red.first && block < red.end ? "red" : "blue";
    pen.rect(left, y(size), wide, bottom - y(size), `fill ${hue}`, 2);
    pen.rect(left, y(size), wide, bottom - y(outputs[block]), "fill orange", 2);
    pen.text(left + wide / 2, bottom + 15, block + 1, "small faint middle");
  });
  for (const { end } of pieces.slice(0, -1)) {
    pen.rect(x(end) - 1.5, BARS.top - 6, 3, BARS.height + 10, "fill", 1.5);
  }
}

// Memory while a piece runs again, block by block: the outputs before it, and what it saves.
function drawSaw(pen, { level }, pieces, area) {
  const { saved } = LEVELS[level];
  const [x, peak] = [across(area, level), need(worst(pieces))];
  // As high as √n equal pieces, or the plan.
  const most = Math.max(peak, goals(level).root);
  const y = linear(0, 1.1 * most, area.bottom, area.top);
  pen.text(area.left, area.top - 10, "memory while a piece runs", "small faint");
  rows(pen, ticks(0, most, 4), y, area.left, area.right);
  for (const piece of pieces) {
    const hue = piece === worst(pieces) ? "red" : "blue";
    const wide = x(piece.end) - x(piece.first);
    const column = (left, width, from, to, look) =>
      pen.rect(left, y(to), width, y(from) - y(to), look);
    column(x(piece.first) + 1, wide - 2, 0, piece.held, "fill orange");
    let now = piece.held;
    for (let block = piece.first; block < piece.end; block++) {
      now += saved[block];
      const left = x(block) + (block === piece.first ? 1 : 0);
      const inner = x(block + 1) - left - (block === piece.end - 1 ? 1 : 0);
      column(left, inner + 0.3, piece.held, now, `fill ${hue}`);
    }
  }
  pen.line(area.left, y(peak), area.right, y(peak), "red dash");
  pen.text(area.right, y(peak) - 6, `peak ${peak}`, "bold end");
  const entries = [["fill blue", "saved by the piece"]];
  entries.push(["fill orange", "outputs of the pieces before"], ["fill red", "the highest piece"]);
  legend(pen, entries, { left: area.left, right: area.right, top: area.bottom + 12 });
}

// Plans to beat: name, peak, blocks that run again.
function rivals(state, population) {
  const { level } = state;
  const row = (name, cuts) => [name, peakOf(level, cuts), again(cuts)];
  const all = [row("keep", []), row("root", equalCuts(level, rootPieces(level)))];
  all.push(row("grid", gridCuts(level)));
  if (state.generation) all.push(row("genetic", population[0]));
  if (state.known.includes(level)) all.push(row("exact", exactCuts(level)));
  return all;
}

function drawBoard(pen, state, cuts, all, { left, right, top }) {
  const peak = peakOf(state.level, cuts);
  const [second, third] = [right - 74, right];
  pen.text(left, top, "plans", "small faint");
  pen.text(second, top, "peak", "small faint end");
  pen.text(third, top, "run again", "small faint end");
  const line = (number, hue, name, values, look) => {
    const y = top + 4 + ROW * number;
    pen.dot(left + 5, y - 4, 4.5, `fill ${hue}`);
    pen.text(left + 16, y, name, look);
    pen.text(second, y, values[0], `${look} end`);
    pen.text(third, y, values[1], `${look} end`);
  };
  Object.entries(NAMES).forEach(([name, text], i) => {
    const found = all.find(([of]) => of === name);
    const unknown = name === "exact" ? ["?", "?"] : ["–", "–"];
    const words = name === "genetic" && found ? `${text}, ${state.generation}` : text;
    line(i + 1, DOTS[name], words, found ? found.slice(1) : unknown, "small");
  });
  const won = state.given.includes(state.level) ? "" : medal(state.level, peak);
  line(6, "orange", won ? `yours: ${won}` : "yours", [peak, again(cuts)], "small bold");
}

// Blocks that run again against the peak: each plan a dot.
function drawPlans(pen, state, cuts, all, population, area) {
  const { level } = state;
  const nested = state.nested ? frontier(level) : [];
  const most = Math.max(lengthOf(level), ...nested.map(([, runs]) => runs));
  const x = linear(0, most, area.left, area.right - 6);
  const y = logarithmic(6, 1.2 * uncut(level), area.bottom, area.top);
  pen.text(area.left, area.top - 10, "peak, by blocks that run again", "small faint");
  rows(pen, [10, 20, 40, 80], y, area.left, area.right);
  columns(pen, ticks(0, most, 4), x, area.bottom);
  if (state.generation) {
    for (const plan of population) pen.dot(x(again(plan)), y(peakOf(level, plan)), 3, "fill grey");
  }
  pen.path(nested.map(([peak, runs]) => [x(runs), y(peak)]), "line red");
  for (const [name, peak, runs] of all) pen.dot(x(runs), y(peak), 4.5, `fill ${DOTS[name]}`);
  pen.dot(x(again(cuts)), y(peakOf(level, cuts)), 6.5, "hollow orange");
}

// ---------------------------------------------------------------- cuts as buttons

// Buttons between the blocks. The arrow keys move from one to the next.
function gates(frame, state, change) {
  const row = html("div", "gates", frame.stage);
  row.setAttribute("role", "group");
  frame.adopt(row, "cuts");
  const all = [];
  const make = (place) => {
    const gate = html("button", "gate", row);
    gate.type = "button";
    frame.adopt(gate, `cut before block ${place + 1}`);
    gate.addEventListener("click", () => {
      const rest = cutsOf(state).filter((cut) => cut !== place);
      change(rest.length < cutsOf(state).length ? rest : ordered([...rest, place]));
    });
    return gate;
  };
  row.addEventListener("keydown", (event) => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!move) return;
    all[clamp(all.indexOf(event.target) + move, 0, all.length - 1)].focus();
    event.preventDefault();
  });
  return (area) => {
    const [count, x, cuts] = [lengthOf(state.level), across(area, state.level), cutsOf(state)];
    if (all.length !== count - 1) {
      row.replaceChildren();
      all.splice(0, all.length, ...steps(1, count - 1, 1).map(make));
    }
    all.forEach((gate, i) => {
      // Its middle is 26 pixels below its top edge.
      const place = { left: x(i + 1), top: BARS.top + 26, height: BARS.height };
      for (const [side, size] of Object.entries(place)) gate.style[side] = `${size}px`;
      gate.setAttribute("aria-pressed", cuts.includes(i + 1));
    });
  };
}

function render({ el }) {
  const state = { ...OPENS };
  let place;
  const frame = new Frame(el, {
    name: "cut-the-network",
    ask: "Six pieces: which should be the longest, for the lowest peak?",
    task: "Click between two blocks: a cut. Beat √n for bronze, the grid for silver; exact is gold.",
    caption:
      "Simulated: a chain of blocks. At a cut only an output is kept; the piece before it runs " +
      "forward again when backward arrives. Grid: cut where the sum passes a threshold, 24 are " +
      "tried. Genetic: 16 plans, the best of which have children: a cut is moved, two pieces are " +
      "merged, one is split. Exact: dynamic programming. Nested checkpoints, the red " +
      "line: a piece that runs again is cut again, for less memory and more runs. The hourglass " +
      "is without its skips. Nothing here is measured.",
    state,
    height: (width) => places({ width, narrow: width < NARROW }).plans.bottom + 40,
    draw: (pen, now, size) => {
      const [area, cuts] = [places(size), cutsOf(now)];
      const generations = evolve(now.level, now.generation);
      const population = generations[now.generation];
      const [pieces, all] = [piecesOf(now.level, cuts), rivals(now, population)];
      drawBlocks(pen, now, pieces, area.saw, size.narrow);
      drawSaw(pen, now, pieces, area.saw);
      drawBoard(pen, now, cuts, all, area.board);
      drawPlans(pen, now, cuts, all, population, area.plans);
      place?.(area.saw);
      return inWords(now, cuts, generations.map(([best]) => peakOf(now.level, best)));
    },
  });
  const change = (own) => {
    const won = medal(state.level, peakOf(state.level, own)) === "gold";
    frame.set({ own, known: won ? [...state.known, state.level] : state.known });
  };
  const options = Object.entries(SHAPES);
  frame.bet({ options, answer, play: (shape) => ({ own: bestShape(state.level, shape) }) });
  const names = Object.entries(LEVELS).map(([level, { name }]) => [level, name]);
  frame.menu({ name: "level", label: "network", options: names });
  frame.root.querySelector(".xp-menu").addEventListener("change", () => {
    frame.set({ pieces: rootPieces(state.level), own: null, generation: 0, nested: false });
  });
  frame.slider({
    name: "pieces",
    label: "equal pieces",
    values: () => steps(1, lengthOf(state.level), 1),
    text: (pieces) => (state.own ? "your own cuts" : String(pieces)),
    change: (pieces) => frame.set({ pieces, own: null }),
  });
  frame.button({
    name: "genetic",
    text: ({ generation }) => `Genetic: ${generation < LAST ? "next generation" : "begin anew"}`,
    press: () => frame.set({ generation: (state.generation + 1) % (LAST + 1) }),
  });
  const known = () => state.known.includes(state.level);
  frame.button({
    name: "exact",
    text: () => (!known() ? "Give up" : state.nested ? "One level" : "Nest checkpoints"),
    press: () => {
      if (known()) return frame.set({ nested: !state.nested });
      const [every, given] = [state.known, state.given].map((all) => [...all, state.level]);
      return frame.set({ known: every, given, own: exactCuts(state.level) });
    },
  });
  place = gates(frame, state, change);
  return () => frame.close();
}

export { again, answer, bestShape, equalCuts, evolve, exactCuts, frontier, goals, gridCuts };
export { inWords, medal, peakOf, piecesOf, rootPieces, shrinking, LEVELS, OPENS };
export default { render };
