// 19, the model: a bias on a channel, and six norms behind it, some of which take it away.

const [IMAGES, CHANNELS, PIXELS] = [4, 8, 16];
const NUMBERS = IMAGES * PIXELS; // of a channel
const GROUP = 4; // channels of a group
const EPSILON = 1e-5;
const NOTICED = 1e-3; // deviations of the outputs: a smaller change is rounding
const BET = 10; // the bias that a bet is decided by

const NORMS = {
  batch: "batch norm",
  layer: "layer norm",
  instance: "instance norm",
  rms: "RMS norm",
  group: "group norm",
  frozen: "frozen batch norm",
};
const ORDER = Object.keys(NORMS);
const FATES = { notices: "it notices", swallows: "it does not" };
const SIZES = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];
const BIASES = [...SIZES.map((size) => -size).reverse(), 0, ...SIZES];
const OPENS = {
  norm: "batch",
  bias: 0,
  channel: 2,
  to: "one",
  between: "no",
  precision: "fp32",
  marks: {},
};

// ---------------------------------------------------------------- numbers

const REAL = new Float32Array(1);
const BITS = new Uint32Array(REAL.buffer);

// The nearest number with 8 significand bits; in the middle between two, the even one.
function bf16(value) {
  REAL[0] = value;
  BITS[0] = (BITS[0] + 0x7fff + ((BITS[0] >>> 16) & 1)) & 0xffff0000;
  return REAL[0];
}

const ROUND = { fp32: Math.fround, bf16 };

// Image, channel and pixel of a number by its place.
function cell(place) {
  const row = Math.floor(place / PIXELS);
  return [Math.floor(row / CHANNELS), row % CHANNELS, place % PIXELS];
}

// What the layer computes without a bias: each channel has a mean and a deviation of its own.
function computed() {
  const next = uniform(19);
  const ofChannels = steps(1, CHANNELS, 1).map(() => [3 * next() - 1.5, 0.6 + 0.8 * next()]);
  return steps(0, CHANNELS * NUMBERS - 1, 1).map((place) => {
    const [middle, deviation] = ofChannels[cell(place)[1]];
    return Math.fround(middle + deviation * normal(next));
  });
}

const COMPUTED = computed();

// The layer's output with its bias, as it is kept.
function inputs({ bias, channel, to, precision }) {
  const gets = (place) => to === "all" || cell(place)[1] === channel;
  return COMPUTED.map((value, place) => ROUND[precision](gets(place) ? value + bias : value));
}

// Numbers with the same key share their statistics.
const KEYS = {
  batch: (image, channel) => channel,
  frozen: (image, channel) => channel,
  instance: (image, channel) => CHANNELS * image + channel,
  group: (image, channel) => CHANNELS * image + Math.floor(channel / GROUP),
  layer: (image, channel, pixel) => PIXELS * image + pixel,
  rms: (image, channel, pixel) => PIXELS * image + pixel,
};

// Mean and variance of the numbers with each key; of RMS norm 0 and the mean square.
function statistics(norm, values) {
  const groups = new Map();
  values.forEach((value, place) => {
    const key = KEYS[norm](...cell(place));
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(value);
  });
  const found = new Map();
  for (const [key, group] of groups) {
    const middle = norm === "rms" ? 0 : mean(group);
    found.set(key, [middle, mean(group.map((value) => (value - middle) ** 2))]);
  }
  return found;
}

const between = (state) => {
  const values = inputs(state);
  return state.between === "yes" ? values.map((value) => Math.max(0, value)) : values;
};
const bare = (state) => ({ ...state, bias: 0 });

// The norm's outputs. A frozen one has the statistics of the numbers without a bias.
function outputs(state) {
  const values = between(state);
  const known = statistics(state.norm, state.norm === "frozen" ? between(bare(state)) : values);
  return values.map((value, place) => {
    const [middle, variance] = known.get(KEYS[state.norm](...cell(place)));
    return (value - middle) / Math.sqrt(variance + EPSILON);
  });
}

// The numbers of each channel.
function byChannel(values) {
  const channels = steps(1, CHANNELS, 1).map(() => []);
  values.forEach((value, place) => channels[cell(place)[1]].push(value));
  return channels;
}

// The root of the mean square by which the bias changes the outputs of each channel.
function changes(state) {
  const before = byChannel(outputs(bare(state)));
  return byChannel(outputs(state)).map((channel, number) =>
    Math.sqrt(mean(channel.map((value, place) => (value - before[number][place]) ** 2))),
  );
}

const change = (state) => Math.max(...changes(state));

// Whether the norm notices a bias: what a bet can be, of which one is right.
function answer(state) {
  return [change({ ...state, bias: BET }) > NOTICED ? "notices" : "swallows"];
}

// ---------------------------------------------------------------- the game

// The first mark of a norm counts, unless the answer was seen before.
function mark({ norm, marks }, right, seen) {
  return norm in marks ? {} : { marks: { ...marks, [norm]: seen ? null : right } };
}

const next = ({ norm }) => ORDER[(ORDER.indexOf(norm) + 1) % ORDER.length];

function score({ marks, between: step, precision }) {
  const marked = Object.values(marks);
  const right = marked.filter(Boolean).length;
  if (marked.length < ORDER.length) return `${right} of ${marked.length} right.`;
  const star = right === ORDER.length ? " ★ You know who notices." : "";
  const more = step === "no" && precision === "fp32" ? " Now try ReLU between, then bf16." : "";
  return `${right} of ${ORDER.length} right.${star}${more}`;
}

// ---------------------------------------------------------------- words

const WHY = {
  batch: "It subtracts each channel's mean, and with it the bias",
  instance: "It subtracts a channel's mean in each image, and with it the bias",
  group: `Its mean is over ${GROUP} channels: a quarter of the bias goes, and the other three move`,
  layer: `Its mean is over ${CHANNELS} channels: an eighth of the bias goes, and the others move`,
  rms: "It divides, and subtracts no mean",
  frozen: "It subtracts a mean that was kept from training",
};

function why(state) {
  const { norm, to, between: step, precision } = state;
  if (step === "yes") return "The bias decides what ReLU cuts off, before the norm";
  if (to === "all" && (norm === "layer" || norm === "group")) {
    return "All channels have the same bias, so their mean has it, too";
  }
  const own = norm === "batch" || norm === "instance";
  if (own && precision === "bf16" && state.bias) {
    return "The sum is rounded to 8 bits first: a large bias leaves few for the rest";
  }
  return WHY[norm];
}

// By how much outputs change, in percent of their deviation.
function percent(part) {
  const value = 100 * part;
  return `${value < 10 ? value.toPrecision(2) : Math.round(value).toLocaleString("en")} %`;
}

function effect(state) {
  if (!state.bias) return "the bias is still 0, drag the channel.";
  const by = change(state);
  if (by <= NOTICED) return "no output changes.";
  return `outputs change by ${percent(by)} of their deviation.`;
}

function inWords(state) {
  const [first, ...rest] = NORMS[state.norm];
  const name = first.toUpperCase() + rest.join("");
  return `${name}: ${effect(state)} ${why(state)}. ${score(state)}`;
}
