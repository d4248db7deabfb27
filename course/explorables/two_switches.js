// 20: eight batches of a validation, what each switch keeps of them, and what learns from them.

const TANK = { top: 40, high: 128 };
const SLAB = TANK.high / END;
const CHART = { top: 226, bottom: 296 };
const HUES = { earlier: "fill orange", now: "fill purple" };
const LEGEND = [
  [HUES.now, "this batch"],
  [HUES.earlier, "earlier batches"],
  ["line grey thin dash", "as it opens", "line"],
];

// Where the right column begins, or what lies below where it is narrow.
function places({ width, narrow }) {
  const left = narrow ? width : 0.62 * width;
  const below = { left: 0, right: width, top: CHART.bottom + 50 };
  const beside = { left: 0.67 * width, right: width, top: 12 };
  return { left, aside: narrow ? below : beside };
}

// A batch above the blocks, and in each block's tank a slab for each graph that is alive.
function drawTanks(pen, state, { narrow }, { left }) {
  const { time, blocks } = state;
  const { batch, run } = place(state, time);
  const [wide, gap] = [left / blocks, blocks > 8 ? 6 : 10];
  const whole = graphs(state, time);
  for (let block = 0; block < blocks; block++) {
    const x = wide * block;
    pen.rect(x, TANK.top, wide - gap, TANK.high, "hollow grey thin", 4);
    const running = time > 0 && block === run - 1;
    const kept = records(state) ? block < run : running;
    const slab = (level, look) => {
      const y = TANK.top + TANK.high - SLAB * (level + 1);
      pen.rect(x + 2, y + 1, wide - gap - 4, SLAB - 2, look, 2);
    };
    for (let level = 0; level < whole; level++) slab(level, HUES.earlier);
    if (kept) slab(whole, HUES.now);
    const name = narrow || blocks > 8 ? `${block + 1}` : `block ${block + 1}`;
    pen.text(x + (wide - gap) / 2, TANK.top + TANK.high + 16, name, "small faint middle");
    if (running) drawBatch(pen, x + (wide - gap) / 2, batch, left);
  }
  if (!time) drawBatch(pen, (wide - gap) / 2, 0, left);
}

// The batch on its way, with its name where there is room.
function drawBatch(pen, x, batch, left) {
  pen.arrow(x, 22, x, TANK.top - 3, "faint thin");
  const words = `batch ${batch + 1} of ${END}`;
  if (x > left - 90) pen.text(x - 8, 26, words, "small end");
  else pen.text(x + 8, 26, words, "small");
}

// The most that was alive in each batch so far.
function drawChart(pen, state, { narrow, revealed }, { left }) {
  const opens = { ...OPENS, blocks: state.blocks };
  const most = peak(opens);
  const y = linear(0, most, CHART.bottom, CHART.top);
  const title = narrow ? "memory: tensors in each batch" : "memory, batch by batch, in tensors";
  pen.text(0, CHART.top - 18, title, "small faint");
  const pitch = left / END;
  for (let batch = 0; batch < END; batch++) {
    const [x, wide] = [pitch * batch, pitch - 10];
    const time = Math.min(state.time, batch + 1);
    if (time <= batch) continue;
    const { earlier, now } = held(state, time);
    pen.rect(x, y(earlier), wide, CHART.bottom - y(earlier), HUES.earlier);
    pen.rect(x, y(earlier + now), wide, y(earlier) - y(earlier + now), HUES.now);
    pen.text(x + wide / 2, y(earlier + now) - 4, earlier + now, "small middle");
    // Where the number leaves room for it.
    const before = y(alive(opens, batch + 1));
    if (y(earlier + now) - before < 18) continue;
    pen.path([[x, before], [x + wide, before]], "line grey thin dash");
  }
  pen.line(0, CHART.bottom, left, CHART.bottom, "hair");
  legend(pen, LEGEND.slice(0, revealed ? 3 : 2), { left: 0, right: left, top: CHART.bottom + 14 });
}

// Batch norm's mean as a needle between that of the training and of the validation images.
function drawMean(pen, state, { left, right, top }) {
  const at = running(state, state.time);
  const x = linear(0, OTHER, left + 8, right - 8);
  pen.text(left, top + 12, `batch norm's mean: ${at.toFixed(2)}`, "bold");
  pen.line(x(0), top + 42, x(OTHER), top + 42, "grey thin");
  for (const value of [0, OTHER]) pen.line(x(value), top + 36, x(value), top + 48, "grey thin");
  pen.text(left, top + 63, "training images", "small faint");
  pen.text(right, top + 63, "validation images", "small faint end");
  const look = at ? "fill red" : "fill faint";
  pen.path([[x(at), top + 42], [x(at) - 6, top + 26], [x(at) + 6, top + 26]], look);
}

// The numbers of the batch that runs, and which of them dropout strikes out.
function drawDropout(pen, state, { left, right, top }) {
  const { batch } = place(state, state.time);
  const gone = state.time ? dropped(state, 1, batch) : Array(UNITS).fill(false);
  const count = gone.filter(Boolean).length;
  pen.text(left, top + 96, `dropout strikes out ${count} of ${UNITS}`, "bold");
  const pitch = Math.min(30, (right - left) / UNITS);
  gone.forEach((struck, unit) => {
    const [x, y] = [left + 9 + pitch * unit, top + 116];
    pen.dot(x, y, 7, struck ? "hollow red" : "fill faint");
    if (!struck) return;
    pen.line(x - 4, y - 4, x + 4, y + 4, "red");
    pen.line(x - 4, y + 4, x + 4, y - 4, "red");
  });
}

const SIGNS = { green: "✓", red: "✗", open: "" };
const LOOKS = { green: "fill green", red: "fill red", open: "hollow grey thin" };

function drawLamps(pen, state, { revealed, narrow }, { left, right, top }) {
  const shown = revealed ? lamps(state, state.time) : {};
  Object.entries(LAMPS).forEach(([lamp, words], number) => {
    const across = narrow ? 0.5 * (right - left) : 0;
    const x = left + 10 + across * (number % 2);
    const y = top + 166 + 34 * (narrow ? Math.floor(number / 2) : number);
    const now = shown[lamp] ?? "open";
    pen.dot(x, y, 10, LOOKS[now]);
    pen.text(x, y + 5, SIGNS[now], "bold middle on");
    pen.text(x + 18, y + 5, words, now === "open" ? "faint" : "");
  });
  if (revealed) drawFound(pen, state, left, top + (narrow ? 240 : 304));
}

// A dot for each setting with four green lamps, full once it is found.
function drawFound(pen, { found }, left, y) {
  const words = pen.text(left, y, "all four green, found:", "bold");
  const first = left + words.getComputedTextLength() + 16;
  for (let each = 0; each < GREEN; each++) {
    const look = each < found.length ? "fill green" : "hollow grey thin";
    pen.dot(first + 20 * each, y - 5, 7, look);
  }
}

function render({ el }) {
  const state = { ...OPENS };
  const frame = new Frame(el, {
    name: "two-switches",
    ask: "Which one switch saves the most memory: eval(), no_grad, or .item()?",
    task: "Then find all settings with four green lamps. Play shows how the memory fills.",
    caption:
      "Simulated: eight batches, one after the other, in blocks of layers. A tensor is what " +
      "a layer computes from a batch. A graph keeps two of each block; weights are left out. " +
      "Nothing here is measured; the panel below measures.",
    state,
    height: (width) => (width < NARROW ? places({ width, narrow: true }).aside.top + 248 : 336),
    draw: (pen, now, size) => {
      const where = places(size);
      drawTanks(pen, now, size, where);
      drawChart(pen, now, size, where);
      drawMean(pen, now, where.aside);
      drawDropout(pen, now, where.aside);
      drawLamps(pen, now, size, where.aside);
      return inWords(now);
    },
  });
  const film = { name: "time", values: steps(0, END, 0.1), seconds: 6 };
  const { layers, autograd, total, blocks } = OPENS;
  frame.bet({
    options: [["eval", "eval()"], ["no_grad", "no_grad"], ["item", ".item()"]],
    // A bet begins from the opening settings.
    answer: () => answer(OPENS),
    play: (name) => ({ layers, autograd, total, blocks, ...BETS[name], time: END }),
    film,
  });
  const choice = (name, label, texts) => {
    const options = CHOICES[name].map((value) => [value, texts[value] ?? value]);
    const change = (value) => frame.set(switched(state, { [name]: value }));
    frame.choice({ name, label, options, change });
  };
  choice("total", "total +=", { loss: "loss", item: "loss.item()" });
  choice("autograd", "autograd", { grad: "grad" });
  choice("layers", "layers", { train: "train()", eval: "eval()" });
  frame.slider({
    name: "blocks",
    label: "blocks",
    values: DEPTHS,
    change: (depth) => frame.set(switched(state, { blocks: depth })),
  });
  frame.player(film);
  return () => frame.close();
}

export { answer, BETS, DEPTHS, dropped, GREEN, held, inWords, isGreen, lamps, loss, OPENS, peak };
export { running, switched };
export default { render };
