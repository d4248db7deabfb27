// 07: gradients pushed into the window of a format, and a weight that takes updates or stays.

const [LOW, HIGH] = [-52, 24]; // powers of two of the axis
const HUES = { zero: "red", few: "orange", kept: "blue", large: "purple" };
const PARTS = { sign: "red", exponent: "blue", fraction: "green" };
const DEEP = 24; // bits of a number that the comb has room for
const MIDDLE = LEAST + 17; // power of most gradients
const SCALES = steps(0, 46, 1);
const UPDATES = [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1];
const ADDED = 100;
const FEWEST = 3; // pixels between neighbours that are drawn one by one

const raised = (sign) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(sign)];
const power2 = (value) => `2${[...String(value)].map(raised).join("")}`;
const shown = (value, digits = 5) => String(Number(value.toPrecision(digits)));
const share = (count) => {
  const percent = (100 * count) / ALL;
  return `${percent && percent < 0.1 ? percent.toPrecision(1) : Number(percent.toPrecision(3))} %`;
};

function places({ width, narrow }) {
  const [left, right] = [narrow ? 40 : 56, width - 10];
  const bars = { left, right, top: 24, bottom: narrow ? 132 : 150 };
  const comb = { left, right, top: bars.bottom + 22, bottom: bars.bottom + 58 };
  return { bars, comb, line: { left, right, top: comb.bottom + 84, bottom: comb.bottom + 122 } };
}

const across = ({ left, right }) => linear(LOW, HIGH, left, right);

// The gradients by size, each bar in the colour of what becomes of it.
function drawBars(pen, state, area, narrow) {
  const x = across(area);
  const y = logarithmic(0.7, 60000, area.bottom, area.top);
  pen.text(area.left, area.top - 10, "gradients, by size", "small faint");
  rows(pen, [1, 100, 10000], y, area.left, area.right, (value) => value.toLocaleString("en"));
  COUNTS.forEach((count, i) => {
    const place = LEAST + i + state.scale;
    const [from, to] = [x(place), x(place + 1)];
    if (from > area.right - 2) return;
    const look = `fill ${HUES[fate(state.format, place)]}`;
    pen.rect(from + 0.5, y(count), to - from - 1, area.bottom - y(count), look);
  });
  columns(pen, narrow ? steps(-40, 20, 20) : steps(-50, 20, 10), x, area.bottom, power2);
}

// Below each power of two, how many bits a number there has: the comb ends where the format does.
function drawComb(pen, state, { left, right, top, bottom }, narrow) {
  const x = across({ left, right });
  // Few bits are still to be seen beside many.
  const depth = (bits) => (bottom - top) * Math.sqrt(bits / DEEP);
  const { bottom: normal, top: highest, fraction, torch } = FORMATS[state.format];
  pen.line(left, top, right, top, "hair");
  for (let place = LOW; place < HIGH; place++) {
    const bits = 1 + fraction - Math.max(0, normal - place);
    if (bits < 1 || place > highest) continue;
    const look = place < normal ? "fill orange half" : "fill green half";
    pen.rect(x(place) + 0.5, top, x(place + 1) - x(place) - 1, depth(bits), look);
  }
  const name = narrow ? torch : `torch.${torch}`;
  pen.text(narrow ? 4 : left, bottom + 14, `${name}: longer teeth, more digits`, "small faint");
}

// The weight, the numbers next to it, and where its updates would bring it.
function drawLine(pen, state, { left, right, top, bottom }, narrow) {
  const { format, weight, update, times } = state;
  const title = `a weight of ${shown(weight)} gets +${update}, ${times} times`;
  pen.text(narrow ? 4 : left, top - 12, title, "small faint");
  if (!Number.isFinite(weight)) {
    pen.text(left, bottom - 12, `${weight}: no update moves it`, "bold red");
    return;
  }
  const far = Math.max(ADDED * update, 2.5 * gap(format, weight));
  const x = linear(weight - 0.08 * far, weight + 1.12 * far, left, right);
  const each = gap(format, weight);
  const middle = (top + bottom) / 2;
  if (x(weight + each) - x(weight) < FEWEST) {
    pen.rect(left, middle - 6, right - left, 12, "fill green half");
  } else {
    pen.line(left, middle, right, middle, "hair");
    for (let place = weight; x(place) <= right; place += gap(format, place)) {
      pen.line(x(place), middle - 6, x(place), middle + 6, "green");
    }
  }
  const [exact, now] = [weight + times * update, walked(state)];
  pen.dot(x(exact), middle - 14, 5, "line grey");
  pen.dot(clamp(x(now), left, right), middle, 7, `fill ${stuck(state) ? "red" : "blue"}`);
  if (!narrow) pen.text(x(exact) + 9, middle - 16, "exactly", "small faint");
  pen.text(clamp(x(now), left + 4, right - 70), bottom + 10, shown(now), "small bold");
  const entries = [
    [stuck(state) ? "fill red" : "fill blue", "stored", "dot"],
    ["line green", `${format}'s numbers, ${shown(each, 3)} apart`, "line"],
  ];
  legend(pen, entries, { left, right, top: bottom + 16 });
}

const stuck = (state) => state.times > 0 && walked(state) === state.weight;

function reach(state) {
  const { zero, few, large } = fates(state);
  const { full, max } = FORMATS[state.format];
  const end = full ? `are cut to ${max}` : "become inf";
  const parts = [];
  if (zero) parts.push(`${share(zero)} become zero`);
  if (large) parts.push(`${share(large)} ${end}`);
  if (!parts.length) parts.push("none is lost");
  if (few) parts.push(`${share(few)} have fewer digits`);
  return `Scale ${power2(state.scale)} in ${state.format}: ${parts.join(", ")}.`;
}

function why(state) {
  const { zero, large } = fates(state);
  if (zero && large) return "The gradients are wider than the format: no scale will do.";
  if (zero) return "The smallest lie left of the comb.";
  if (large) return "The largest lie right of the comb.";
  return "";
}

function spacing(state) {
  if (!state.times || !Number.isFinite(state.weight)) return "";
  const half = shown(gap(state.format, state.weight) / 2, 2);
  if (stuck(state)) {
    return `The weight stays: +${state.update} is under ${half}, half the way to its neighbour.`;
  }
  const exact = shown(state.weight + state.times * state.update);
  return `The weight is ${shown(walked(state))}, exactly it would be ${exact}.`;
}

const inWords = (state) => [reach(state), why(state), spacing(state)].filter(Boolean).join(" ");

// The bits of the weight with what was added so far.
const storedBits = (state) => bitsOf(state.format, walked(state));

// Each bit is a button that turns it over.
function bitRow(frame) {
  const row = html("div", "bits");
  row.style.cssText = "display: flex; flex-wrap: wrap; gap: 2px; align-items: baseline";
  frame.stage.after(row);
  row.setAttribute("role", "group");
  frame.adopt(row, "bits of the weight");
  let made = "";
  frame.watch(() => {
    const { format } = frame.state;
    const bits = storedBits(frame.state);
    if (made !== format) {
      row.replaceChildren(html("span", "label", null, "the weight's bits (click one) "));
      bits.forEach((_, place) => addBit(frame, row, place));
      made = format;
    }
    row.querySelectorAll("button").forEach((node, place) => {
      node.textContent = bits[place];
      node.setAttribute("aria-pressed", bits[place] === 1);
      const hue = `var(--xp-${PARTS[node.dataset.part]})`;
      node.style.background = `color-mix(in srgb, ${hue} ${bits[place] * 32}%, transparent)`;
    });
  });
}

function addBit(frame, row, place) {
  const { exponent } = FORMATS[frame.state.format];
  const part = place === 0 ? "sign" : place <= exponent ? "exponent" : "fraction";
  const number = place - (part === "fraction" ? exponent : 0);
  const node = html("button", "bit", row);
  Object.assign(node, { type: "button" }).dataset.part = part;
  node.style.cssText = `width: 18px; padding: 1px 0; border: 1px solid var(--xp-${PARTS[part]});
    border-radius: 3px; color: inherit; font: inherit; cursor: pointer;
    margin-left: ${number === 1 ? 6 : 0}px`;
  frame.adopt(node, `${part} bit ${number}`);
  node.addEventListener("click", () => {
    const { format } = frame.state;
    const bits = storedBits(frame.state);
    bits[place] = 1 - bits[place];
    frame.set({ weight: numberOf(format, bits), times: 0 });
  });
}

function render({ el }) {
  const state = { ...OPENS };
  let grip;
  const frame = new Frame(el, {
    name: "bits-and-window",
    ask: "Nearly all these gradients become zero in fp16. Which loss scale loses none of them?",
    task:
      "Push the bars over the comb. Then let Play add updates to a weight, in fp16 and in " +
      "bf16, which has no red bar. Its bits are below: click one.",
    caption:
      "The gradients were counted once, in the network of the panel below; here they are " +
      "moved by whole powers of two. Rounding is simulated exactly: to the nearest number, of two " +
      "equally near ones to the even one. " +
      "e5m2 and e4m3 have eight bits: a sign, and as many of exponent and fraction as the name " +
      "says. e4m3 has no inf: torch keeps what is too large at 448. Nothing is timed.",
    state,
    height: (width) => (width < NARROW ? 366 : 364),
    draw: (pen, now, size) => {
      const area = places(size);
      now.weight = rounded(now.format, now.weight);
      drawBars(pen, now, area.bars, size.narrow);
      drawComb(pen, now, area.comb, size.narrow);
      const names = { zero: "zero", few: "fewer digits", kept: "kept", large: "too large" };
      const entries = Object.entries(names).map(([key, word]) => [`fill ${HUES[key]}`, word]);
      const { left, right, bottom } = area.comb;
      legend(pen, entries, { left, right, top: bottom + 22 });
      drawLine(pen, now, area.line, size.narrow);
      grip?.(across(area.bars)(MIDDLE + now.scale + 0.5), area.bars.bottom - 6);
      return inWords(now);
    },
  });
  frame.bet({
    name: "scale",
    options: BETS.map((scale) => [scale, power2(scale)]),
    answer,
    play: (scale) => ({ scale }),
  });
  frame.slider({ name: "scale", label: "loss scale", values: SCALES, text: power2 });
  frame.menu({
    name: "format",
    label: "format: exponent + fraction",
    options: Object.entries(FORMATS).map(([name, { exponent, fraction }]) => [
      name,
      `${name}: ${exponent} + ${fraction} bits`,
    ]),
  });
  frame.slider({ name: "update", label: "update of the weight", values: UPDATES });
  frame.slider({ name: "times", label: "times added", values: steps(0, ADDED, 1) });
  frame.player({ name: "times", values: steps(0, ADDED, 1), seconds: 3 });
  bitRow(frame);
  grip = frame.grip({
    name: "scale",
    label: "the gradients, moved by the loss scale",
    values: SCALES,
    text: power2,
    from: (x) => across(places(frame.size()).bars).back(x) - MIDDLE - 0.5,
  });
  return () => frame.close();
}

export { OPENS, BETS, FORMATS, COUNTS, LEAST, rounded, gap, bitsOf, numberOf, fate, fates };
export { walked, answer };
export default { render };
