// 11: the drawing of models/memory_saw.js.

const TIMES = steps(0, 1, 0.005);
const STRIP = 96; // pixels
const HUES = { forward: "blue", bare: "orange", again: "purple", backward: "green" };
const WORDS = {
  forward: "forward, keeps all",
  bare: "forward, keeps its end",
  again: "forward again",
  backward: "backward",
};

const STRIP_HEIGHT = 44; // of a block, in pixels

function strip({ width }, blocks) {
  const left = 52;
  const size = (width - left - 8) / blocks;
  return { x: (place) => left + size * place, size, top: 26 };
}

// The network as a row of blocks, and which of its tensors are in memory now.
function drawStrip(pen, state, now, size) {
  const { x, size: wide, top } = strip(size, state.blocks);
  pen.text(x(0), 12, `what blocks keep at the ${size.narrow ? "" : "grey "}line`, "small faint");
  const [edge, inset] = wide > 24 ? [3, 4] : [1, 2];
  now.held.forEach((what, block) => {
    const runs = block === now.block;
    const [left, inner] = [x(block) + edge, wide - 2 * edge];
    pen.rect(left, top, inner, STRIP_HEIGHT, runs ? `fill ${HUES[now.kind]}` : "fill pale", 4);
    if (runs) pen.rect(left + 2, top + 2, inner - 4, STRIP_HEIGHT - 4, "fill paper", 3);
    drawTensors(pen, what, state.saved, left + inset, top + 4, inner - 2 * inset);
    if (wide > 18) pen.text(left + inner / 2, top + 60, block + 1, "small faint middle");
  });
  for (const cut of cutsOf(state)) {
    pen.rect(x(cut) - 2, top - 4, 4, STRIP_HEIGHT + 8, "fill orange", 2);
  }
}

// The tensors of a block, the lowest its output: blue where all are kept, orange the output alone.
function drawTensors(pen, what, saved, left, top, width) {
  const pitch = (STRIP_HEIGHT - 5) / saved;
  const gap = pitch > 5 ? 3 : 0.8;
  for (let cell = 0; cell < saved; cell++) {
    const filled = what === ALL || (what === OUTPUT && cell === 0);
    const look = !filled ? "fill edge" : what === ALL ? "fill blue" : "fill orange";
    const place = top + (saved - 1 - cell) * pitch;
    pen.rect(left, place, width, pitch - gap, look, Math.min(2, pitch / 4));
  }
}

function drawTime(pen, state, { left, right, top, bottom }) {
  const [plain, now] = [account(state.blocks, [], state.saved), present(state)];
  const most = plain.peak * 1.06;
  const longest = account(state.blocks, regular(state.blocks, 1)).seconds;
  const x = linear(0, longest, left, right);
  const y = linear(0, most, bottom, top);
  pen.text(left, top - 10, "memory of one step, in tensors", "small faint");
  rows(pen, ticks(0, most, 4), y, left, right);
  for (const { kind, peak, begin, end } of now.events) {
    pen.rect(x(begin), y(peak), x(end) - x(begin) + 0.4, bottom - y(peak), `fill ${HUES[kind]}`);
  }
  const ends = ({ begin, end, peak }) => [[x(begin), y(peak)], [x(end), y(peak)]];
  pen.path(plain.events.flatMap(ends), "line grey");
  pen.line(left, y(now.peak), right, y(now.peak), "orange dash");
  const star = now.peak === least(state) ? " ★" : "";
  pen.text(right, y(now.peak) - 6, `peak ${now.peak}${star}`, "bold end");
  pen.line(left, bottom, right, bottom, "hair");
  const at = x(state.time * now.seconds);
  pen.line(at, top, at, bottom, "faint");
  const entries = Object.entries(HUES).map(([kind, hue]) => [`fill ${hue}`, WORDS[kind]]);
  entries.push(["grey", "without checkpoints", "line"]);
  legend(pen, entries, { left, right, top: bottom + 26 });
  return { now, plain, at };
}

// Peak by distance of the checkpoints; returns the place of the present one. `seen`: the distances
// that are shown, all of them once the lowest is among them.
function drawCurve(pen, state, peak, { left, right, top, bottom }, seen) {
  const { blocks, every } = state;
  const all = regularPeaks(state);
  const most = Math.max(...all) * 1.06;
  const x = linear(0, blocks, left, right);
  const y = linear(0, most, bottom, top);
  pen.text(left, top - 10, "peak, by distance", "small faint");
  rows(pen, ticks(0, most, 4), y, left, right);
  columns(pen, ticks(0, blocks, 4), x, bottom);
  pen.text(right, bottom + 33, "blocks between two checkpoints", "small faint end");
  const found = answer(state).some((each) => seen.has(each));
  if (found) pen.path(all.map((value, i) => [x(i + 1), y(value)]), "line grey");
  all.forEach((value, i) => {
    if (found || seen.has(i + 1)) pen.dot(x(i + 1), y(value), 3.5, "fill grey");
  });
  if (!found) {
    pen.text((left + right) / 2, top + 24, "where is it lowest?", "bold middle faint");
  }
  if (state.own) {
    pen.line(left, y(peak), right, y(peak), "orange dash");
    pen.text(right, y(peak) - 6, `yours: ${peak}`, "small bold end");
  }
  return [x(every), y(state.own ? peak : all[every - 1])];
}

function places({ width, narrow }) {
  const top = STRIP + 34;
  if (narrow) {
    return {
      time: { left: 52, right: width - 8, top, bottom: top + 170 },
      curve: { left: 52, right: width - 8, top: top + 322, bottom: top + 432 },
    };
  }
  const split = Math.round(width * 0.66);
  return {
    time: { left: 52, right: split, top, bottom: top + 190 },
    curve: { left: split + 58, right: width - 10, top, bottom: top + 190 },
  };
}

// Buttons between the blocks. The arrow keys move from one to the next.
function gates(frame, state) {
  const row = html("div", "gates", frame.stage);
  row.setAttribute("role", "group");
  frame.adopt(row, "checkpoints");
  const toggle = (place) => {
    const cuts = cutsOf(state);
    const own = cuts.includes(place) ? cuts.filter((cut) => cut !== place) : [...cuts, place];
    frame.set({ own: own.sort((a, b) => a - b) });
  };
  const make = (place) => {
    const gate = html("button", "gate", row);
    gate.type = "button";
    frame.adopt(gate, `checkpoint before block ${place + 1}`);
    gate.addEventListener("click", () => toggle(place));
    gate.addEventListener("keydown", (event) => {
      const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!move) return;
      row.children[clamp(place - 1 + move, 0, row.children.length - 1)].focus();
      event.preventDefault();
    });
    gate.addEventListener("focus", () => {
      for (const other of row.children) other.tabIndex = other === gate ? 0 : -1;
    });
    gate.tabIndex = place === 1 ? 0 : -1;
  };
  return (size) => {
    if (row.children.length !== state.blocks - 1) {
      row.replaceChildren();
      for (let place = 1; place < state.blocks; place++) make(place);
    }
    const { x, top } = strip(size, state.blocks);
    const cuts = cutsOf(state);
    [...row.children].forEach((gate, i) => {
      gate.style.left = `${x(i + 1)}px`;
      gate.style.top = `${top + 22}px`;
      gate.setAttribute("aria-pressed", cuts.includes(i + 1));
    });
  };
}

function render({ el }) {
  const state = { ...OPENS };
  const grips = {};
  const tried = {};
  const frame = new Frame(el, {
    name: "memory-saw",
    ask: "16 blocks: a checkpoint after every how many gives the lowest peak?",
    task:
      "Drag the orange dot. Press Play and watch the blocks. " +
      "Then click between two blocks to place a checkpoint yourself.",
    caption:
      "Simulated: a chain of equal blocks. Each saves some tensors for its backward, one of which " +
      "is its output; a backward takes twice the time of a forward. With checkpoints, forward " +
      "keeps nothing but the output at the end of a piece, and the piece runs forward again " +
      "before its backward. The last piece keeps all, as its backward comes at once; PyTorch's " +
      "checkpoint runs it again, too: one more tooth, the same peak. " +
      "Parameters and the optimizer are left out. Nothing here is measured; the panel measures.",
    state,
    height: (width) => STRIP + (width < NARROW ? 518 : 288),
    draw: (pen, now, size) => {
      const area = places(size);
      const found = drawTime(pen, now, area.time);
      drawStrip(pen, now, eventAt(found.now, now.time), size);
      grips.gates?.(size);
      grips.time?.(found.at, area.time.bottom);
      const seen = (tried[`${now.blocks} ${now.saved}`] ??= new Set());
      if (!now.own) seen.add(now.every);
      grips.every?.(...drawCurve(pen, now, found.now.peak, area.curve, seen));
      return inWords(now, found.now, found.plain);
    },
  });
  frame.bet({
    name: "every",
    options: [1, 2, 4, 8].map((every) => [every, every === 1 ? "1 block" : `${every} blocks`]),
    answer,
    play: (every) => ({ every, own: null }),
  });
  const text = (every) => {
    if (state.own) return "your own";
    if (every === state.blocks) return "none";
    return every === 1 ? "every block" : `every ${every} blocks`;
  };
  // Whoever moves the slider wants no places of their own any more.
  const change = (every) => frame.set({ every, own: null });
  const values = () => steps(1, state.blocks, 1);
  frame.slider({
    name: "blocks",
    label: "blocks",
    values: [4, 6, 9, 12, 16, 20, 25],
    change: (blocks) => frame.set({ blocks, own: null, every: Math.min(state.every, blocks) }),
  });
  frame.slider({
    name: "saved",
    label: "a block saves",
    values: [2, 4, 8, 16],
    text: (saved) => `${saved} tensors`,
    change: (saved) => frame.set({ saved, own: null }),
  });
  frame.slider({ name: "every", label: "checkpoints", values, text, change });
  frame.player({ name: "time", values: TIMES, seconds: 9 });
  grips.every = frame.grip({
    name: "every",
    label: "distance of checkpoints, on the curve",
    look: "orange",
    values,
    text,
    change,
    from: (x) => {
      const { left, right } = places(frame.size()).curve;
      return linear(0, state.blocks, left, right).back(x);
    },
  });
  grips.time = frame.grip({
    name: "time",
    label: "time in the step",
    look: "dark",
    values: TIMES,
    text: (time) => `${Math.round(100 * time)} % of the step`,
    from: (x) => {
      const { left, right } = places(frame.size()).time;
      const longest = account(state.blocks, regular(state.blocks, 1)).seconds;
      return linear(0, longest, left, right).back(x) / present(state).seconds;
    },
  });
  grips.gates = gates(frame, state);
  return () => frame.close();
}

export { regular, account, answer, least, BLOCK, INPUT, OPENS };
export default { render };
