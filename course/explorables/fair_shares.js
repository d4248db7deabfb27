// 13: sentences in trays, one a micro-batch: which tokens count too much, and what it keeps.

const GAP = 16; // between trays, in pixels
const [HEAD, ROW, FOOT] = [22, 15, 30]; // above, of a strip, and below
const CHART = 96;
// Trays below this width have short words.
const FEW = 150;
// As many strips as a tray has room for without squeezing them.
const ROOM = { wide: 8, narrow: 6 };

// Where the trays and the bars are.
function places({ width, narrow }, { count }) {
  const columns = narrow && count > 3 ? Math.ceil(count / 2) : count;
  const lines = Math.ceil(count / columns);
  const wide = (width - GAP * (columns - 1)) / columns;
  const pile = ROOM[narrow ? "narrow" : "wide"] * ROW;
  // Where trays are narrow, their tokens have a line of their own.
  const high = HEAD + pile + FOOT + (wide < FEW ? 15 : 0);
  const trays = steps(0, count - 1, 1).map((tray) => {
    const left = (tray % columns) * (wide + GAP);
    const top = Math.floor(tray / columns) * high;
    return { left, top: top + HEAD, right: left + wide, bottom: top + HEAD + pile };
  });
  const top = lines * high + 50;
  return { trays, cell: Math.min(11, wide / 21), chart: { top, bottom: top + CHART } };
}

// The tray that a point of the stage lies in, or is nearest to.
function trayAt(trays, x, y) {
  const away = ({ left, right, top, bottom }) =>
    Math.hypot(x - clamp(x, left, right), y - clamp(y, top - HEAD, bottom + FOOT));
  const all = trays.map(away);
  return all.indexOf(Math.min(...all));
}

// Rectangles of the strips, by sentence: in each tray the longest one at the bottom.
function strips({ count, trays }, { trays: areas, cell }) {
  const found = [];
  for (let tray = 0; tray < count; tray++) {
    const { left, top, bottom } = areas[tray];
    const inside = SENTENCES.map((_, i) => i).filter((i) => trays[i] === tray);
    const pitch = Math.min(ROW, (bottom - top) / Math.max(1, inside.length));
    inside.reverse().forEach((sentence, place) => {
      const y = bottom - pitch * (place + 1);
      found[sentence] = { x: left, y, wide: cell * SENTENCES[sentence], high: pitch - 2, tray };
    });
  }
  return found;
}

// Too heavy is red, too light blue, the stronger the more.
function looks(weight, revealed) {
  const strength = Math.abs(Math.log2(weight));
  if (!revealed || strength < 1e-9) return { look: "fill grey", opacity: 0.75 };
  const look = weight > 1 ? "fill red" : "fill blue";
  return { look, opacity: clamp(0.35 + 0.3 * strength, 0.4, 1) };
}

function drawStrips(pen, state, place, revealed) {
  const [tokens, all] = [tokensOf(state), strips(state, place)];
  const longest = inTrays(state).map((sentences) => sentences[0] ?? 0);
  const gap = place.cell > 5 ? 1.5 : 0.8;
  all.forEach(({ x, y, high, tray }, sentence) => {
    const { look, opacity } = looks(counts(tokens[tray], state), revealed);
    for (let square = 0; square < longest[tray]; square++) {
      const token = square < SENTENCES[sentence];
      const at = [x + place.cell * square, y, place.cell - gap, high];
      const node = pen.rect(...at, token ? look : "fill purple soft", 1);
      if (token) node.setAttribute("opacity", opacity);
    }
  });
}

function drawTrays(pen, state, { trays }, { revealed, narrow }) {
  const tokens = tokensOf(state);
  trays.forEach(({ left, right, top, bottom }, tray) => {
    const few = right - left < FEW;
    const name = few ? `tray ${tray + 1}` : `tray ${tray + 1}: ${tokens[tray]} tokens`;
    pen.text(left, top - 8, name, "small faint");
    const edge = [[left, top], [left, bottom + 2], [right, bottom + 2], [right, top]];
    pen.path(edge, "line thin grey");
    if (few) pen.text(left, bottom + 33, `${tokens[tray]} tokens`, "small faint");
    if (!tokens[tray] || !revealed) return;
    const weight = counts(tokens[tray], state);
    const { look } = looks(weight, true);
    const hue = look.replace("fill", "").trim();
    const fair = Math.abs(weight - 1) < 1e-9;
    const words = narrow || few ? times(weight) : `each counts ${times(weight)}`;
    pen.text(left, bottom + 18, fair ? "fair" : words, fair ? "bold" : `bold ${hue}`);
  });
}

// What a tray keeps while it runs, its padding on top; the highest is the peak.
function drawMemory(pen, state, { trays, chart }, { width, narrow, revealed }) {
  const each = memory(state);
  const [now, goal] = [peak(state), revealed ? goalOf(state) : 0];
  const y = linear(0, 1.15 * Math.max(now, goal), chart.bottom, chart.top);
  const title = "memory, one tray after the other: squares that are kept for backward";
  pen.text(0, chart.top - 14, narrow ? "memory, tray by tray, in squares" : title, "small faint");
  if (goal) pen.line(0, y(goal), width, y(goal), "grey thin dash");
  const line = trays.every(({ top }) => top === trays[0].top);
  const step = width / state.count;
  each.forEach(({ all, padding }, tray) => {
    const left = line ? trays[tray].left : step * tray;
    const wide = Math.min(120, (line ? trays[tray].right - left : step - 8) * 0.8);
    pen.rect(left, y(all - padding), wide, chart.bottom - y(all - padding), "fill purple");
    pen.rect(left, y(all), wide, y(all - padding) - y(all), "fill purple soft");
    // Above the bar, where the dashed line leaves room.
    const above = y(all) - 5;
    const met = goal && above + 3 > y(goal) && above - 12 < y(goal);
    const look = all === now ? "small bold middle" : "small middle";
    pen.text(left + wide / 2, met ? y(goal) - 4 : above, all, look);
  });
  pen.line(0, chart.bottom, width, chart.bottom, "hair");
}

// The lowest peak that the mean of the means can have; 0 where there is none to beat.
function goalOf({ count }) {
  const equal = lowestEqual(count);
  return Number.isFinite(equal) && count > 1 ? equal : 0;
}

function drawLegend(pen, state, { revealed, width }, { chart }) {
  const weights = [["fill grey", "right weight"], ["fill red", "counts too much"]];
  weights.push(["fill blue", "counts too little"]);
  const entries = revealed ? weights : [["fill grey", "a token"]];
  entries.push(["fill purple", "kept"], ["fill purple soft", "padding"]);
  const goal = revealed && goalOf(state);
  if (goal) entries.push(["grey thin dash", `${goal}: lowest with equal tokens`, "line"]);
  legend(pen, entries, { left: 0, right: width, top: chart.bottom + 14 });
}

// Buttons over the strips: dragged, or moved by arrow keys.
function handles(frame, state, move) {
  let place = { trays: [] };
  const nodes = SENTENCES.map((tokens, sentence) => {
    const node = html("button", "strip", frame.stage);
    node.type = "button";
    node.addEventListener("keydown", (event) => {
      const sideways = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const along = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (sideways) move(sentence, state.trays[sentence] + sideways);
      else if (along) nodes[clamp(sentence + along, 0, nodes.length - 1)].focus();
      else return;
      event.preventDefault();
    });
    node.addEventListener("pointerdown", (event) => {
      node.setPointerCapture(event.pointerId);
      node.focus();
      event.preventDefault();
    });
    node.addEventListener("pointermove", (event) => {
      if (!node.hasPointerCapture(event.pointerId)) return;
      const box = frame.stage.getBoundingClientRect();
      move(sentence, trayAt(place.trays, event.clientX - box.left, event.clientY - box.top));
    });
    return node;
  });
  return (now) => {
    place = now;
    strips(state, place).forEach(({ x, y, wide, high, tray }, sentence) => {
      const node = nodes[sentence];
      const at = { left: x, top: y, width: Math.max(24, wide), height: high };
      for (const [side, size] of Object.entries(at)) node.style[side] = `${size}px`;
      const told = `sentence of ${SENTENCES[sentence]} tokens, tray ${tray + 1}`;
      frame.adopt(node, told);
    });
  };
}

function render({ el }) {
  const state = { ...OPENS };
  let put;
  const frame = new Frame(el, {
    name: "fair-shares",
    ask: "The sentence of 2 tokens is alone in its tray: how many times too much does each count?",
    task: "Drag sentences into other trays until every token is grey. Then pack for little memory.",
    caption:
      "Simulated: 12 sentences, a square is a token. A tray is a micro-batch; its losses are " +
      "added up and divided as chosen; its gradient is added to those of the other trays. Pale " +
      "squares are padding: no token, but a tray is as wide as its longest sentence. Nothing " +
      "here is measured.",
    state,
    height: (width) => places({ width, narrow: width < NARROW }, state).chart.bottom + 50,
    draw: (pen, now, size) => {
      const place = places(size, now);
      drawTrays(pen, now, place, size);
      drawStrips(pen, now, place, size.revealed);
      drawMemory(pen, now, place, size);
      drawLegend(pen, now, size, place);
      put?.(place);
      return inWords(now);
    },
  });
  const move = (sentence, tray) => {
    const to = clamp(tray, 0, state.count - 1);
    if (to === state.trays[sentence]) return;
    frame.set({ trays: state.trays.map((each, i) => (i === sentence ? to : each)) });
  };
  const options = BETS.map((factor) => [factor, `${factor}×`]);
  frame.bet({ options, answer, play: () => ({ trays: lone(state.count) }) });
  frame.slider({
    name: "count",
    label: "trays",
    values: COUNTS,
    change: (count) => frame.set({ count, trays: dealt(count, state.deal) }),
  });
  const divisors = Object.entries(DIVISORS);
  frame.menu({ name: "divide", label: "divide a tray's sum of losses by", options: divisors });
  const pack = (name, text, way) =>
    frame.button({ name, text: () => text, press: () => frame.set(way()) });
  pack("deal", "Shuffle", () => {
    const deal = state.deal + 1;
    return { deal, trays: dealt(state.count, deal) };
  });
  pack("sort", "Sort", () => ({ trays: sorted(state.count) }));
  pack("balance", "Balance", () => ({ trays: balanced(state.count) }));
  put = handles(frame, state, move);
  return () => frame.close();
}

export { answer, balanced, counts, dealt, inTrays, inWords, lone, lowest, lowestEqual, medal };
export { memory, off, peak, sorted, BETS, OPENS, SENTENCES };
export default { render };
