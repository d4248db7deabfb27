// 21: whose numbers share a mean, and whose outputs a bright spot changes, norm by norm.

const IMAGES = steps(1, 8, 1);
const BRIGHTS = steps(0, BRIGHTEST, 0.1);
const TINTS = 7; // levels of grey
const [GAP, TOP, LABEL] = [5, 44, 18]; // pixels
const FREE = "look around";

// What each mean is taken over.
const SHARED = {
  batch: "a channel in all images",
  eval: "a channel in all images, and was kept from training",
  layer: "all numbers of an image",
  group: `${GROUP} channels of an image`,
  instance: "one channel of one image",
  position: "the channels of one pixel",
  rms: "the channels of one pixel; it divides, and subtracts nothing",
};

function places({ width, narrow }, images) {
  const room = narrow ? width - LABEL : (width - 2 * LABEL - 34) / 2;
  const tile = Math.min(46, Math.floor(room / CHANNELS) - GAP);
  const tall = images * (tile + GAP);
  const before = { left: LABEL, top: TOP, tile };
  const after = narrow
    ? { left: LABEL, top: TOP + tall + TOP, tile }
    : { left: 2 * LABEL + room + 34, top: TOP, tile };
  return { before, after, room, bottom: after.top + tall };
}

const corner = ({ left, top, tile }, number) => {
  const [image, channel] = cell(number);
  return [left + channel * (tile + GAP), top + image * (tile + GAP)];
};

// Many small squares as one shape.
function squares(pen, area, numbers, look, opacity = 1) {
  if (!numbers.length) return;
  const side = area.tile / SIDE;
  const parts = numbers.map((number) => {
    const [x, y] = corner(area, number);
    const pixel = number % PIXELS;
    const [left, top] = [x + side * (pixel % SIDE), y + side * Math.floor(pixel / SIDE)];
    return `M${left.toFixed(1)} ${top.toFixed(1)}h${side}v${side}h${-side}z`;
  });
  svg("path", look, { d: parts.join(""), opacity }, pen.layer);
}

// Numbers as grey, between the lowest and the highest that are shown.
function drawNumbers(pen, area, values, low, high) {
  const levels = steps(0, TINTS, 1).map(() => []);
  values.forEach((value, number) => {
    const part = clamp((value - low) / (high - low), 0, 1);
    levels[Math.round(TINTS * part)].push(number);
  });
  levels.forEach((numbers, level) =>
    squares(pen, area, numbers, "fill", 0.06 + (0.5 * level) / TINTS),
  );
}

// Titles, and a name for each image.
function drawFrame(pen, area, images, title, note) {
  pen.text(area.left, area.top - 26, title, "bold");
  pen.text(area.left, area.top - 9, note, "small faint");
  for (let image = 0; image < images; image++) {
    const y = area.top + image * (area.tile + GAP) + area.tile / 2 + 4;
    pen.text(area.left - 6, y, String(image + 1), "small faint end");
  }
}

function drawInputs(pen, area, state) {
  const note = `a row is an image, a square a channel`;
  drawFrame(pen, area, state.images, "numbers before the norm", note);
  drawNumbers(pen, area, inputs(state), 0, 4);
  squares(pen, area, mates(state), "fill orange half");
  // The spot itself: the brighter, the stronger.
  squares(pen, area, spot(state), "fill orange", 0.5 + (0.5 * state.bright) / BRIGHTEST);
  const number = spot(state)[0];
  const [x, y] = corner(area, number);
  pen.rect(x - 1.5, y - 1.5, area.tile + 3, area.tile + 3, "line orange");
}

function drawOutputs(pen, area, state) {
  const { changed, others } = reached(state);
  const note = state.bright
    ? `${changed.length} outputs change, ${others.length} in other images`
    : "the spot is not brighter yet";
  drawFrame(pen, area, state.images, "outputs of the norm", note);
  drawNumbers(pen, area, outputs(state), -2, 2);
  const by = changes(state);
  const strong = Math.max(...by);
  const [much, little] = [[], []];
  for (const number of changed) (by[number] > strong / 4 ? much : little).push(number);
  squares(pen, area, little, "fill purple", 0.55);
  squares(pen, area, much, "fill purple", 0.9);
}

function inWords(state, met) {
  const { changed, others } = reached(state);
  const [first, ...rest] = NORMS[state.norm];
  const name = first.toUpperCase() + rest.join("");
  const shared = `${name}: a mean is over ${SHARED[state.norm]}.`;
  const row = images(others);
  const where = row ? `also in ${row}` : "all in its own image";
  const seen = state.bright ? `The spot changes ${changed.length} outputs, ${where}.` : "";
  if (state.request === "free") return `${shared} ${seen || "Brighten the spot."}`;
  const { text } = REQUESTS[state.request];
  const several = state.images < 2 ? ", asked of two images" : "";
  const verdict = (meets(state.request, state) ? "✓ does it" : "✗ does not") + several;
  const score = `${met.size} of ${Object.keys(REQUESTS).length} requests met`;
  return `Wanted: ${text} ${name} ${verdict}. ${score}. ${shared} ${seen}`;
}

// ``images 2, 3 and 4``
function images(numbers) {
  const found = [...new Set(numbers.map((number) => cell(number)[0] + 1))];
  if (found.length < 2) return found.length ? `image ${found[0]}` : "";
  return `images ${found.slice(0, -1).join(", ")} and ${found.at(-1)}`;
}

// The grip moves along channels; up and down it goes to the next image.
function upAndDown(frame, state, grip) {
  const moves = { ArrowUp: -CHANNELS, ArrowDown: CHANNELS };
  const move = (event) => {
    const to = state.place + moves[event.key];
    if (!(event.key in moves)) return;
    event.stopImmediatePropagation();
    event.preventDefault();
    if (to >= 0 && to < state.images * CHANNELS) frame.set({ place: to });
  };
  grip.addEventListener("keydown", move, { capture: true });
}

function render({ el }) {
  const state = { ...OPENS };
  const met = new Set();
  let put = () => {};
  let area;
  const film = { name: "bright", values: BRIGHTS, seconds: 2 };
  const frame = new Frame(el, {
    name: "whose-mean",
    ask: "A spot of image 1 gets brighter: which norm then changes the outputs of other images?",
    task:
      "A norm subtracts a mean and divides by a deviation. Orange: numbers that share the spot's " +
      "mean. Purple: outputs that change. Press Play, choose a norm, drag the spot.",
    caption:
      "Simulated: 8 channels of 4 × 4 pixels per image, random numbers, computed exactly as " +
      "PyTorch does in training; γ = 1, β = 0. Strong purple: the change is over a quarter of " +
      "the largest. Layer norm is over a whole image, as GroupNorm(1, C); per pixel is the " +
      "LayerNorm of transformers. RMS norm divides by the root of the mean square. Nothing is " +
      "measured here; the panel below trains networks.",
    state,
    height: (width) => places({ width, narrow: width < NARROW }, state.images).bottom + 2,
    draw: (pen, now, size) => {
      area = places(size, now.images);
      drawInputs(pen, area.before, now);
      drawOutputs(pen, area.after, now);
      const [x, y] = corner(area.before, spot(now)[0]);
      put(x + area.before.tile / 2, y + area.before.tile / 2);
      if (now.request !== "free" && meets(now.request, now)) met.add(now.request);
      return inWords(now, met);
    },
  });
  const options = ["batch", "layer", "group", "instance"].map((norm) => [norm, NORMS[norm]]);
  frame.bet({
    name: "norm",
    options: [...options, ["none", "none of them"]],
    // The question is about several images, however many the slider has.
    answer: (now) => answer({ ...now, images: OPENS.images }),
    play: (norm) => ({
      ...(norm in NORMS && { norm }), images: OPENS.images, place: OPENS.place, bright: BRIGHTEST,
    }),
    film,
  });
  frame.menu({ name: "norm", label: "norm", options: Object.entries(NORMS) });
  frame.slider({
    name: "images",
    label: "images in the batch",
    values: IMAGES,
    change: (images) =>
      frame.set({ images, place: Math.min(state.place, images * CHANNELS - 1) }),
  });
  frame.slider({ name: "bright", label: "brightness of the spot", values: BRIGHTS });
  const requests = Object.entries(REQUESTS).map(([name, { title }]) => [name, title]);
  frame.menu({
    name: "request",
    label: "five requests",
    options: [["free", FREE], ...requests],
    // A request begins with a norm that does not do it.
    change: (request) => frame.set({ request, norm: request === "quiet" ? "batch" : "layer" }),
  });
  frame.player(film);
  put = frame.grip({
    name: "place",
    label: "spot",
    values: () => steps(0, state.images * CHANNELS - 1, 1),
    text: (place) => `image ${Math.floor(place / CHANNELS) + 1}, channel ${(place % CHANNELS) + 1}`,
    look: "dark",
    from: (x, y) => {
      const { left, top, tile } = area.before;
      const along = (at, last) => clamp(Math.floor(at / (tile + GAP)), 0, last);
      return CHANNELS * along(y - top, state.images - 1) + along(x - left, CHANNELS - 1);
    },
  });
  upAndDown(frame, state, frame.root.querySelector(".xp-grip"));
  return () => frame.close();
}

export {
  NORMS, OPENS, REQUESTS, answer, changes, inputs, mates, meets, outputs, reached, spot,
};
export default { render };
