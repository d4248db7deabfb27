// 21: numbers that share a mean, and the outputs that one bright spot changes.

const [CHANNELS, SIDE] = [8, 4]; // of an image; pixels of a side of a channel
const PIXELS = SIDE * SIDE;
const GROUP = 4; // channels of a group
const SPOT = [5, 6, 9, 10]; // pixels of one channel that get brighter
const BRIGHTEST = 4;
const EPSILON = 1e-5;
const CLEAR = 1e-6; // a smaller change is rounding

const OPENS = { norm: "layer", images: 4, place: 2, bright: 0, request: "free" };
const NORMS = {
  batch: "batch norm",
  eval: "batch norm in eval()",
  layer: "layer norm",
  group: "group norm",
  instance: "instance norm",
  position: "norm per pixel",
  rms: "RMS norm",
};

// Cells with the same key share a mean.
const KEYS = {
  batch: (image, channel) => channel,
  eval: (image, channel) => channel,
  layer: (image) => image,
  group: (image, channel) => [image, Math.floor(channel / GROUP)].join(),
  instance: (image, channel) => [image, channel].join(),
  position: (image, channel, pixel) => [image, pixel].join(),
  rms: (image, channel, pixel) => [image, pixel].join(),
};

// Image, channel and pixel of a cell by its number.
function cell(number) {
  const tile = Math.floor(number / PIXELS);
  return [Math.floor(tile / CHANNELS), tile % CHANNELS, number % PIXELS];
}

const count = ({ images }) => images * CHANNELS * PIXELS;
const keyOf = (norm, number) => String(KEYS[norm](...cell(number)));

// The cells of the spot. It stays in the batch where there are fewer images.
function spot({ place, images }) {
  const tile = Math.min(place, images * CHANNELS - 1);
  return SPOT.map((pixel) => tile * PIXELS + pixel);
}

// The numbers before the norm: images and channels differ in brightness, pixels at random.
function inputs(state) {
  const next = uniform(21);
  const ofImages = steps(1, 8, 1).map(() => 1.2 * next());
  const ofChannels = steps(1, CHANNELS, 1).map(() => 1.6 * next());
  const values = [];
  for (let number = 0; number < count(state); number++) {
    const [image, channel] = cell(number);
    values.push(ofImages[image] + ofChannels[channel] + 0.8 * next());
  }
  for (const number of spot(state)) values[number] += state.bright;
  return values;
}

// Mean and mean square of the cells with each key.
function statistics(norm, values) {
  const sums = new Map();
  values.forEach((value, number) => {
    const key = keyOf(norm, number);
    const [n, first, second] = sums.get(key) ?? [0, 0, 0];
    sums.set(key, [n + 1, first + value, second + value * value]);
  });
  const found = new Map();
  for (const [key, [n, first, second]] of sums) found.set(key, [first / n, second / n]);
  return found;
}

// The numbers behind the norm. In eval() it divides by what it kept of the batch without a spot.
function normalize(norm, values, kept = values) {
  const known = statistics(norm, norm === "eval" ? kept : values);
  return values.map((value, number) => {
    const [mean, square] = known.get(keyOf(norm, number));
    if (norm === "rms") return value / Math.sqrt(square + EPSILON);
    return (value - mean) / Math.sqrt(square - mean * mean + EPSILON);
  });
}

const dark = (state) => inputs({ ...state, bright: 0 });
const outputs = (state) => normalize(state.norm, inputs(state), dark(state));

// By how much the spot changes each output.
function changes(state) {
  const before = outputs({ ...state, bright: 0 });
  return outputs(state).map((value, number) => Math.abs(value - before[number]));
}

// The cells that share a mean with the spot.
function mates(state) {
  const keys = new Set(spot(state).map((number) => keyOf(state.norm, number)));
  return steps(0, count(state) - 1, 1).filter((number) => keys.has(keyOf(state.norm, number)));
}

// The outputs that the spot changes, and those of them in other images.
function reached(state) {
  const [own] = cell(spot(state)[0]);
  const changed = [];
  changes(state).forEach((by, number) => by > CLEAR && changed.push(number));
  return { changed, others: changed.filter((number) => cell(number)[0] !== own) };
}

// The norms with which a spot in one image changes outputs of another one.
function answer(state) {
  const all = Object.keys(NORMS).filter((norm) => norm !== "eval");
  const found = all.filter(
    (norm) => reached({ ...state, norm, bright: BRIGHTEST }).others.length > 0,
  );
  return found.length ? found : ["none"];
}

// ---------------------------------------------------------------- the requests

const average = (values, wanted) => mean(values.filter((value, number) => wanted(number)));
const quiet = (state) => !reached({ ...state, bright: BRIGHTEST }).others.length;

// Whether an image that is brighter in all its cells stays brighter behind the norm.
function staysBright(state) {
  const [own] = cell(spot(state)[0]);
  const mine = (number) => cell(number)[0] === own;
  const plain = dark(state);
  const lit = plain.map((value, number) => value + (mine(number) ? 2 : 0));
  const [before, after] = [plain, lit].map((values) =>
    average(normalize(state.norm, values, plain), mine),
  );
  return after > before + CLEAR;
}

// Whether the mean of each channel of each image becomes 0.
function evens(state) {
  const tiles = statistics("instance", normalize(state.norm, dark(state)));
  return [...tiles.values()].every(([first]) => Math.abs(first) < CLEAR);
}

// Whether a pixel changes its own outputs, in all channels, and those of no other pixel.
function alone(state) {
  const { changed, others } = reached({ ...state, bright: BRIGHTEST });
  const channels = new Set(changed.map((number) => cell(number)[1]));
  const apart = changed.every((number) => SPOT.includes(cell(number)[2]));
  return !others.length && apart && channels.size === CHANNELS;
}

// Whether the spot's mean is one of several images.
function shares(state) {
  const [own] = cell(spot(state)[0]);
  return mates(state).some((number) => cell(number)[0] !== own);
}

const REQUESTS = {
  quiet: {
    title: "quiet neighbours",
    text: "In training, no image may change another's output.",
    // eval() is no way to train.
    met: (state) => state.norm !== "eval" && quiet(state),
  },
  bright: {
    title: "bright stays bright",
    text: "An image whose numbers are all larger by 2 stays brighter.",
    met: staysBright,
  },
  even: {
    title: "even channels",
    text: "Each channel of each image has mean 0 afterwards.",
    met: evens,
  },
  alone: {
    title: "a pixel alone",
    text: "A pixel changes its own outputs, of all channels, and no others.",
    met: alone,
  },
  kept: {
    title: "many images, quiet",
    text: "The mean comes from many images, yet none changes another's output.",
    met: (state) => shares(state) && quiet(state),
  },
};

// Whether the norm that is set does what is asked for, in a batch of more than one image.
function meets(request, state) {
  return REQUESTS[request].met({ ...state, images: Math.max(2, state.images) });
}
