// 19: a bias moves a channel sideways: which norms notice, and which swallow it.

const ROW = 24; // pixels of a channel
const BAR = 20; // of its fullest bin
const FULL = 16; // numbers of such a bin
const BINS = 44;
const LINE = 18;
const EDGE = 2000; // the largest number that has a place
const TICKS = [-1000, -100, -10, -1, 0, 1, 10, 100, 1000];
const FEW = [-1000, -10, 0, 10, 1000];
const LEGEND = [
  ["fill blue", "with the bias"],
  ["fill purple", "changed by it"],
  ["line grey thin", "without", "line"],
];
// Of what each norm takes the mean.
const MEANS = {
  batch: "less the channel's mean, over all images",
  instance: "less the channel's mean, in each image",
  group: "less the mean of 4 channels of an image",
  layer: "less the mean of a pixel's 8 channels",
  rms: "divided by the size of a pixel's channels",
  frozen: "less the channel's mean, as it was in training",
};
const signed = (value) => (value > 0 ? `+${value}` : String(value).replace("-", "−"));

// ---------------------------------------------------------------- places

// The names of the norms, then both charts: beside each other, or one under the other.
function places({ width, narrow }) {
  const top = (narrow ? 4 : 2) * LINE + 22;
  const high = CHANNELS * ROW;
  const gap = 40;
  const left = 18;
  const wide = narrow ? width - left - 4 : (width - left - gap - 4) / 2;
  const before = { left, top, wide };
  const after = narrow
    ? { left, top: top + high + 3.6 * LINE, wide }
    : { left: left + wide + gap, top, wide };
  return { before, after, high, foot: after.top + high + 36 };
}

// Numbers of any size along a chart: evenly around 0, by their logarithm far from it.
function across({ left, wide }) {
  const inner = linear(-Math.asinh(2 * EDGE), Math.asinh(2 * EDGE), left, left + wide);
  const scale = (value) => inner(Math.asinh(2 * value));
  scale.back = (place) => Math.sinh(inner.back(place)) / 2;
  return scale;
}

const base = ({ top }, channel) => top + ROW * (channel + 1) - 2;

// ---------------------------------------------------------------- drawing

// How many numbers lie in each bin of a chart.
function bins(values, area) {
  const x = across(area);
  const counts = Array(BINS).fill(0);
  for (const value of values) {
    const part = (x(value) - area.left) / area.wide;
    counts[clamp(Math.floor(BINS * part), 0, BINS - 1)] += 1;
  }
  return counts;
}

const height = (count) => BAR * Math.min(1, count / FULL);

function drawBars(pen, counts, area, channel, look) {
  const wide = area.wide / BINS;
  counts.forEach((count, bin) => {
    if (!count) return;
    const high = height(count);
    pen.rect(area.left + wide * bin, base(area, channel) - high, wide - 1, high, look);
  });
}

// The same as an outline: what the channel is without a bias.
function drawOutline(pen, counts, area, channel) {
  const wide = area.wide / BINS;
  const y = base(area, channel);
  const points = [];
  counts.forEach((count, bin) => {
    const x = area.left + wide * bin;
    points.push([x, y - height(count)], [x + wide - 1, y - height(count)]);
  });
  pen.path(points, "line grey thin");
}

function drawChart(pen, area, { high }, narrow, title, note) {
  pen.text(area.left, area.top - 24, title, "bold");
  pen.text(area.left, area.top - 8, note, "small faint");
  const x = across(area);
  const bottom = area.top + high;
  pen.line(x(0), area.top, x(0), bottom, "hair");
  columns(pen, narrow ? FEW : TICKS, x, bottom, (value) => String(value).replace("-", "−"));
  for (let channel = 0; channel < CHANNELS; channel++) {
    const y = base(area, channel);
    pen.line(area.left, y, area.left + area.wide, y, "hair");
    pen.text(area.left - 5, y - 4, String(channel + 1), "small faint end");
  }
}

// The six norms, each with what became of its mark. A click goes there.
function drawNorms(pen, state, { width, narrow }, go) {
  const each = narrow ? 2 : ORDER.length;
  ORDER.forEach((norm, number) => {
    const x = (width / each) * (number % each);
    const y = 13 + LINE * Math.floor(number / each);
    const right = state.marks[norm];
    const [sign, look] =
      right === true ? ["✓", "green"] : right === false ? ["✗", "red"] : ["·", "faint"];
    pen.text(x, y, sign, `bold ${look}`);
    const here = norm === state.norm ? "bold" : "faint";
    const words = pen.text(x + 14, y, NORMS[norm], `small ${here}`);
    words.style.cursor = "pointer";
    words.addEventListener("click", () => go(norm));
  });
}

function drawInputs(pen, state, where, { narrow }, choose) {
  const area = where.before;
  drawChart(pen, area, where, narrow, "what the layer computes", "a row is a channel: 64 numbers");
  const now = byChannel(inputs(state));
  const before = byChannel(inputs(bare(state)));
  now.forEach((values, channel) => {
    const moves = state.to === "all" || channel === state.channel;
    drawOutline(pen, bins(before[channel], area), area, channel);
    drawBars(pen, bins(values, area), area, channel, moves ? "fill blue" : "fill blue half");
    const row = pen.rect(area.left, base(area, channel) - ROW, area.wide, ROW, "fill edge");
    row.style.opacity = 0;
    row.style.cursor = "pointer";
    row.addEventListener("click", () => choose(channel));
  });
}

function drawOutputs(pen, state, where, { narrow, revealed }) {
  const area = where.after;
  const relu = state.between === "yes" ? "ReLU, then " : "";
  const note = `${MEANS[state.norm]}${revealed ? "" : "; with a bias: ?"}`;
  drawChart(pen, area, where, narrow, `${relu}${NORMS[state.norm]}`, note);
  const before = byChannel(outputs(bare(state)));
  const now = byChannel(outputs(state));
  const by = changes(state);
  before.forEach((values, channel) => {
    drawOutline(pen, bins(values, area), area, channel);
    if (!revealed) return;
    const look = by[channel] > NOTICED ? "fill purple" : "fill blue half";
    drawBars(pen, bins(now[channel], area), area, channel, look);
  });
}

function render({ el }) {
  const state = { ...OPENS };
  let put = () => {};
  let area;
  const film = { name: "bias", values: BIASES.filter((b) => b >= 0 && b <= BET), seconds: 1.5 };
  const frame = new Frame(el, {
    name: "swallowed",
    ask: "A channel gets a bias: does the norm behind it notice?",
    task:
      "Six norms, one after the other: bet, then drag a channel sideways. Purple: outputs that " +
      "changed.",
    caption:
      "Simulated: 8 channels of 4 images of 16 pixels, random numbers, computed as PyTorch does " +
      "in training, without γ and β. Group norm has groups of 4 channels; layer and RMS norm are " +
      "over the channels of a pixel, as in transformers. Far from 0 the scale is logarithmic. " +
      "In bf16 the layer's sum is rounded, the norm computes in full precision. Nothing is " +
      "measured here; the panel below measures.",
    state,
    height: (width) => places({ width, narrow: width < NARROW }).foot + 18,
    draw: (pen, now, size) => {
      area = places(size);
      drawNorms(pen, now, size, go);
      drawInputs(pen, now, area, size, (channel) => frame.set({ channel }));
      drawOutputs(pen, now, area, size);
      legend(pen, LEGEND, { left: area.before.left, right: size.width, top: area.foot });
      const { before } = area;
      put(across(before)(middle(now)), base(before, now.channel) - BAR / 2);
      return inWords(now);
    },
  });
  // Room for five in a row.
  frame.controls.style.gridTemplateColumns = "repeat(auto-fit, minmax(126px, 1fr))";
  const go = (norm) => {
    frame.set({ norm, bias: 0 });
    frame.reopen();
  };
  frame.bet({
    options: Object.entries(FATES),
    answer,
    play: (fate) => ({
      bias: BET,
      ...mark(state, answer(state).includes(fate), frame.moved),
    }),
    film,
  });
  frame.slider({ name: "bias", label: "bias", values: BIASES, text: signed });
  frame.slider({
    name: "channel",
    label: "of channel",
    values: steps(0, CHANNELS - 1, 1),
    text: (channel) => String(channel + 1),
  });
  const choice = (name, label, options) => frame.choice({ name, label, options });
  choice("to", "channels with it", [["one", "one"], ["all", "all 8"]]);
  choice("between", "ReLU between", [["no", "no"], ["yes", "yes"]]);
  choice("precision", "precision", [["fp32", "fp32"], ["bf16", "bf16"]]);
  frame.button({ name: "next", text: () => "Next norm", press: () => go(next(state)) });
  put = frame.grip({
    name: "bias",
    label: "the channel's bias",
    look: "dark",
    values: BIASES,
    text: signed,
    from: (x) => across(area.before).back(x) - middle({ ...state, bias: 0 }),
  });
  return () => frame.close();
}

// The mean of the channel that is dragged.
const middle = (state) => mean(byChannel(inputs(state))[state.channel]);

export { answer, bf16, BIASES, byChannel, change, changes, COMPUTED, effect, inputs, inWords };
export { mark, next, NORMS, OPENS, outputs, score, why };
export default { render };
