// 06: the drawing of models/roofline.js.

const HUES = { fp32: "grey", bf16: "blue" };

const text = (value) => value.toLocaleString("en");
const times = (ratio) => `${ratio >= 10 ? ratio.toFixed(1) : ratio.toFixed(2)}×`;
const rate = (value) => `${Number((value / 1e12).toPrecision(3))} T`;

function decades(low, high) {
  const powers = steps(Math.ceil(Math.log10(low)), Math.floor(Math.log10(high)), 1);
  return powers.map((power) => 10 ** power);
}

// Intensity (operations per byte) across, operations per second upwards.
function axes({ machine }, { left, right, top, bottom }) {
  const { peak, bandwidth } = MACHINES[machine];
  const most = Math.max(...Object.values(peak));
  const [least, far] = [4, 6000];
  const [low, high] = [Math.min(4 * bandwidth, most / 800), most * 2.2];
  const x = logarithmic(least, far, left, right);
  return { least, far, low, high, most, x, y: logarithmic(low, high, bottom, top) };
}

function drawRoof(pen, state, format, plane) {
  const { x, y, least, far, most } = plane;
  const { peak, bandwidth } = MACHINES[state.machine];
  const ridge = Math.max(least, peak[format] / bandwidth);
  const flat = y(peak[format]);
  const begin = [x(least), y(Math.min(bandwidth * least, peak[format]))];
  pen.path([begin, [x(ridge), flat], [x(far), flat]], `line ${HUES[format]} thick`);
  const hue = format === "fp32" ? "faint" : HUES[format];
  const shift = peak[format] < most ? 16 : -8;
  pen.text(x(far) - 2, flat + shift, `roof of ${format}`, `small end bold ${hue}`);
}

function drawPlane(pen, state, area) {
  const { left, right, top, bottom } = area;
  const plane = axes(state, area);
  rows(pen, decades(plane.low, plane.high), plane.y, left, right, rate);
  columns(pen, decades(plane.least, plane.far), plane.x, bottom, text);
  pen.line(left, bottom, right, bottom, "hair");
  pen.text(left, top - 10, "operations per second", "small faint");
  pen.text(right, bottom + 33, "operations per byte moved", "small faint end");
  for (const format of FORMATS) drawRoof(pen, state, format, plane);
  return plane;
}

// How far the fixed cost holds a format below its roof.
function drawGap(pen, across, up, roof, format) {
  if (up - roof < 9) return;
  pen.line(across, up, across, roof, `dash ${HUES[format]}`);
  pen.dot(across, roof, 4, `hollow ${HUES[format]}`);
  if (format === "bf16" && up - roof > 40) {
    pen.text(across + 8, up - 18, "gap: fixed cost", "small faint");
  }
}

// Where each format really is; returns the place of bf16.
function drawDots(pen, state, plane, area) {
  const floor = (value) => Math.min(area.bottom - 4, plane.y(value));
  const [[x1, y1], [x2, y2]] = FORMATS.map((format) => {
    const found = layer({ ...state, format });
    const [across, up] = [plane.x(found.intensity), floor(found.rate)];
    drawGap(pen, across, up, floor(found.roof), format);
    pen.dot(across, up, 8, `fill ${HUES[format]}`);
    const before = format === "fp32";
    const look = before ? "end faint" : HUES[format];
    pen.text(across + (before ? -14 : 16), up + 18, format, `small bold ${look}`);
    return [across, up];
  });
  const length = Math.hypot(x2 - x1, y2 - y1);
  if (length > 34) {
    const [dx, dy] = [(x2 - x1) / length, (y2 - y1) / length];
    pen.arrow(x1 + 11 * dx, y1 + 11 * dy, x2 - 14 * dx, y2 - 14 * dy, "orange");
  }
  return [x2, y2];
}

// The speed-up of all widths up to this one: what lies beyond is to be found.
function drawCurve(pen, state, { left, right, top, bottom }) {
  const most = Math.max(2, ...WIDTHS.map((width) => speedup(state, width))) * 1.12;
  const x = logarithmic(WIDTHS[0], WIDTHS[WIDTHS.length - 1], left + 10, right - 10);
  const y = linear(0, most, bottom, top);
  pen.text(left, top - 10, "speed-up, up to this width", "small faint");
  rows(pen, ticks(0, most, 4), y, left, right, (value) => `${value}×`);
  columns(pen, [64, 1024, 16384], x, bottom, text);
  pen.line(left, y(1), right, y(1), "grey thin");
  pen.line(left, y(ENOUGH), right, y(ENOUGH), "green");
  pen.text(right, y(ENOUGH) - 5, `${ENOUGH}×`, "small bold green end");
  const shown = WIDTHS.filter((width) => width <= state.width);
  pen.path(shown.map((width) => [x(width), y(speedup(state, width))]), "line blue thick");
  const now = speedup(state, state.width);
  const place = x(state.width);
  pen.line(place, bottom, place, y(now), "hair");
  pen.dot(place, y(now), 6, "fill blue");
  pen.text(right, bottom + 33, "width of the layer", "small faint end");
  const before = place > (left + right) / 2;
  // Below the curve, or above it where all that is below 2 is a thin strip.
  const up = most > 5 ? y(now) - 8 : y(0.5) + 8;
  pen.text(place + (before ? -12 : 12), up, times(now), `big ${before ? "end" : ""}`);
}

function places({ width, narrow }) {
  const right = narrow ? width - 8 : Math.round(width * 0.61) - 14;
  const plane = { left: 50, right, top: 24, bottom: narrow ? 230 : 262 };
  const curve = narrow
    ? { left: 50, right: width - 8, top: 300, bottom: 410 }
    : { left: right + 52, right: width - 6, top: 24, bottom: 262 };
  return { plane, curve };
}

// What limits the layer in bf16, and so its gain.
function reason(state) {
  const half = layer({ ...state, format: "bf16" });
  const { peak } = MACHINES[state.machine];
  if (half.limit === "fixed cost") {
    const part = Math.round((100 * state.fixed) / half.seconds);
    return `${part} % of its time is the fixed cost of a call, which no format shortens.`;
  }
  if (half.limit === "memory") return "Moving bytes is the limit: half the bytes, half the time.";
  if (peak.bf16 < peak.fp32) return "This machine emulates bf16: its roof is lower.";
  return "Arithmetic is the limit: the higher roof counts.";
}

function inWords(state) {
  const { width } = state;
  const gain = speedup(state, width);
  const words = `The dots are at width ${text(width)}: there bf16 is ${times(gain)} as fast`;
  if (gain < ENOUGH) return `${words}, less than ${ENOUGH}×. ${reason(state)}`;
  const narrower = BETS.some((each) => each < width && speedup(state, each) >= ENOUGH);
  return `${words}. ${narrower ? `A narrower one gains ${ENOUGH}×, too.` : reason(state)}`;
}

function render({ el }) {
  const state = { ...OPENS };
  let put;
  const frame = new Frame(el, {
    name: "roofline",
    ask:
      "On a GPU (RTX 3070): which is the narrowest layer " +
      "that bf16 makes at least 1.5 times as fast?",
    task:
      "Left of a roof's bend moving bytes is the limit, right of it arithmetic. Drag the blue dot " +
      "along under its roof, then take the machine that is most like yours. You need no GPU for it: " +
      "the picture is computed.",
    caption: "",
    state,
    height: (width) => (width < NARROW ? 450 : 302),
    draw: (pen, now, size) => {
      const area = places(size);
      const plane = drawPlane(pen, now, area.plane);
      put?.(...drawDots(pen, now, plane, area.plane));
      drawCurve(pen, now, area.curve);
      return inWords(now);
    },
  });
  const options = BETS.map((width) => [width, `${text(width)} wide`]);
  // A bet is played as the question asks.
  frame.bet({ name: "width", options, answer, play: (width) => ({ ...OPENS, width }) });
  frame.slider({ name: "width", label: "width of the layer", values: WIDTHS, text });
  frame.menu({
    name: "machine",
    label: "machine",
    options: Object.entries(MACHINES).map(([key, { label }]) => [key, label]),
  });
  put = frame.grip({
    name: "width",
    label: "width of the layer, under the roof",
    values: WIDTHS,
    text,
    from: (x) => {
      const { x: across } = axes(state, places(frame.size()).plane);
      const at = (width) => layer({ ...state, width, format: "bf16" }).intensity;
      return WIDTHS[nearest(WIDTHS.map((width) => across(at(width))), x)];
    },
  });
  const caption = frame.root.querySelector(".xp-caption");
  frame.watch(() => {
    caption.textContent =
      "Simulated, for one linear layer of 1,024 rows. Its time is a fixed cost, assumed to be " +
      "10 µs, and the longer of two times: operations divided by the peak, and bytes divided " +
      "by the bandwidth. Conversions between the formats are left out. The peaks are published: " +
      `${MACHINES[state.machine].source}. The panel below measures your machine.`;
  });
  return () => frame.close();
}

export { answer, layer, speedup, BETS, MACHINES, OPENS, WIDTHS };
export default { render };
