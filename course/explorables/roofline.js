// 06: a linear layer under the roofs of two number formats.

// Peaks in operations per second, bandwidth in bytes per second: published, not measured.
const MACHINES = {
  avx2: {
    label: "CPU without bf16, 2 cores",
    source:
      "2 cores at 3 GHz with AVX2: 32 operations per clock and core; " +
      "memory DDR4-3200, two channels; bf16 is emulated, assumed 10 times slower",
    bandwidth: 51.2e9,
    peak: { fp32: 0.192e12, bf16: 0.0192e12 },
  },
  amx: {
    label: "CPU with bf16 (AMX), 2 cores",
    source:
      "2 cores at 2.5 GHz, Intel's figures per clock and core: 64 operations with AVX-512, " +
      "1,024 in bf16 with AMX; memory DDR5-4800, one channel",
    bandwidth: 38.4e9,
    peak: { fp32: 0.32e12, bf16: 5.12e12 },
  },
  gpu8: {
    label: "8 GB GPU (RTX 3070)",
    source: "NVIDIA's GA102 white paper, RTX 3070, sums in fp32",
    bandwidth: 448e9,
    peak: { fp32: 20.3e12, bf16: 40.6e12 },
  },
  h100: {
    label: "H100",
    source:
      "NVIDIA's H100 SXM data sheet, without sparsity; fp32 without TF32, as PyTorch's default",
    bandwidth: 3350e9,
    peak: { fp32: 67e12, bf16: 989e12 },
  },
};
const BYTES = { fp32: 4, bf16: 2 };
const FORMATS = ["fp32", "bf16"];
const WIDTHS = steps(6, 14, 0.25).map((power) => Math.round(2 ** power));
const OPENS = { machine: "gpu8", width: 64, rows: 1024, fixed: 10e-6 };
// The widths of the bet, and the speed-up that it asks for.
const BETS = [128, 256, 512, 1024];
const ENOUGH = 1.5;

// One product of (rows x width) with (width x width). Seconds, operations, bytes.
function layer({ machine, format, width, rows, fixed }) {
  const { peak, bandwidth } = MACHINES[machine];
  const work = 2 * rows * width * width;
  const bytes = BYTES[format] * (width * width + 2 * rows * width);
  const [arithmetic, memory] = [work / peak[format], bytes / bandwidth];
  const useful = Math.max(arithmetic, memory);
  const longer = arithmetic > memory ? "arithmetic" : "memory";
  return {
    seconds: fixed + useful,
    useful,
    limit: fixed > useful ? "fixed cost" : longer,
    longer,
    intensity: work / bytes,
    rate: work / (fixed + useful),
    roof: work / useful,
  };
}

function speedup(state, width) {
  const [full, half] = FORMATS.map((format) => layer({ ...state, width, format }));
  return full.seconds / half.seconds;
}

// The narrowest width of the bet that gains enough, if there is one.
function answer(state) {
  return BETS.filter((width) => speedup(state, width) >= ENOUGH).slice(0, 1);
}

// ---------------------------------------------------------------- drawing

const HUES = { fp32: "grey", bf16: "blue" };
const SIZES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1, ""]];

function rate(value) {
  const [size, letter] = SIZES.find(([limit]) => value >= limit) ?? [1, ""];
  return `${Number((value / size).toPrecision(3))} ${letter}`.trim();
}

function duration(seconds) {
  const micro = seconds * 1e6;
  if (micro < 1e3) return `${Number(micro.toPrecision(3))} µs`;
  if (micro < 1e6) return `${Number((micro / 1e3).toPrecision(3))} ms`;
  return `${seconds.toFixed(2)} s`;
}

const times = (ratio) => `${ratio >= 10 ? ratio.toFixed(1) : ratio.toFixed(2)}×`;
const decades = (low, high) => {
  const powers = steps(Math.ceil(Math.log10(low)), Math.floor(Math.log10(high)), 1);
  return powers.map((power) => 10 ** power);
};

// Intensity (operations per byte) across, operations per second upwards.
function axes({ machine }, left, right, top, bottom) {
  const { peak, bandwidth } = MACHINES[machine];
  const most = Math.max(...Object.values(peak));
  const [least, far] = [4, 6000];
  const low = Math.min(4 * bandwidth, most / 800);
  return {
    least,
    low,
    most,
    x: logarithmic(least, far, left, right),
    y: logarithmic(low, most * 2.2, bottom, top),
    far,
  };
}

function drawRoof(pen, state, format, plane, look) {
  const { x, y, least, low, far } = plane;
  const { peak, bandwidth } = MACHINES[state.machine];
  const ridge = peak[format] / bandwidth;
  const start = Math.max(least, low / bandwidth);
  const points = [];
  if (start < ridge) points.push([x(start), y(bandwidth * start)]);
  points.push([x(Math.max(start, ridge)), y(peak[format])]);
  pen.path([...points, [x(far), y(peak[format])]], `line ${look}`);
}

function drawPlane(pen, state, area) {
  const { left, right, top, bottom } = area;
  const plane = axes(state, left, right, top, bottom);
  const { x, y, least, low, most, far } = plane;
  rows(pen, decades(low, most * 2.2), y, left, right, rate);
  columns(pen, decades(least, far), x, bottom, (value) => value.toLocaleString("en"));
  pen.line(left, bottom, right, bottom, "hair");
  pen.text(left, top - 10, "operations per second", "small faint");
  pen.text(right, bottom + 33, "operations per byte moved", "small faint end");
  const { peak } = MACHINES[state.machine];
  for (const format of FORMATS) {
    drawRoof(pen, state, format, plane, `${HUES[format]} thick`);
    const hue = format === "fp32" ? "faint" : HUES[format];
    const shift = peak[format] < most ? 16 : -8;
    pen.text(right - 2, y(peak[format]) + shift, `roof of ${format}`, `small end bold ${hue}`);
  }
  return plane;
}

// Where each format really is, and how far the fixed cost holds it below its roof.
function drawDots(pen, state, plane, area) {
  const floor = (value) => Math.min(area.bottom - 4, plane.y(value));
  const places = FORMATS.map((format) => {
    const found = layer({ ...state, format });
    const [across, up] = [plane.x(found.intensity), floor(found.rate)];
    if (up - floor(found.roof) > 9) {
      pen.line(across, up, across, floor(found.roof), `dash ${HUES[format]}`);
      pen.dot(across, floor(found.roof), 4, `hollow ${HUES[format]}`);
    }
    pen.dot(across, up, 8, `fill ${HUES[format]}`);
    const side = format === "fp32" ? -14 : 16;
    const look = format === "fp32" ? "end faint" : HUES[format];
    pen.text(across + side, up + 18, format, `small bold ${look}`);
    return [across, up];
  });
  const [[x1, y1], [x2, y2]] = places;
  const length = Math.hypot(x2 - x1, y2 - y1);
  if (length > 34) {
    const [dx, dy] = [(x2 - x1) / length, (y2 - y1) / length];
    pen.arrow(x1 + 11 * dx, y1 + 11 * dy, x2 - 14 * dx, y2 - 14 * dy, "orange");
  }
  return places[1];
}

// Widths between which the dot was, since the rest was last changed: the curve is drawn there.
function trail() {
  let [known, least, most] = ["", 0, 0];
  return ({ width, ...rest }) => {
    const now = JSON.stringify(rest);
    if (now !== known) [known, least, most] = [now, width, width];
    [least, most] = [Math.min(least, width), Math.max(most, width)];
    return WIDTHS.filter((each) => each >= least && each <= most);
  };
}

// Where a width lies along the curve: a dot at its end needs room.
const across = ({ left, right }) =>
  logarithmic(WIDTHS[0], WIDTHS[WIDTHS.length - 1], left + 20, right - 20);

// The speed-up of the widths that are `shown`. Returns the place of the layer on the curve.
function drawCurve(pen, state, shown, area) {
  const { left, right, top, bottom } = area;
  const most = Math.max(2, ...WIDTHS.map((width) => speedup(state, width))) * 1.12;
  const [x, y] = [across(area), linear(0, most, bottom, top)];
  pen.text(left, top - 10, "speed-up of bf16, where the dot has been", "small faint");
  rows(pen, ticks(0, most, 4), y, left, right, (value) => `${value}×`);
  columns(pen, [64, 1024, 16384], x, bottom, (value) => value.toLocaleString("en"));
  pen.line(left, y(1), right, y(1), "grey thin");
  pen.line(left, y(ENOUGH), right, y(ENOUGH), "green dash");
  pen.text(right, y(ENOUGH) - 5, `${ENOUGH}×`, "small bold green end");
  pen.path(shown.map((width) => [x(width), y(speedup(state, width))]), "line blue thick");
  const now = speedup(state, state.width);
  const place = x(state.width);
  pen.line(place, bottom, place, y(now), "orange dash");
  pen.text(right, bottom + 33, "width of the layer", "small faint end");
  const before = place > (left + right) / 2;
  pen.text(place + (before ? -12 : 12), y(0.5) + 8, times(now), `big ${before ? "end" : ""}`);
  return [place, y(now)];
}

// Time of both formats: the fixed cost, and the longer of arithmetic and memory.
function drawBars(pen, state, { left, right, top }) {
  const found = FORMATS.map((format) => layer({ ...state, format }));
  const longest = Math.max(...found.map(({ seconds }) => seconds));
  const x = linear(0, longest, left, right - 78);
  found.forEach(({ seconds, longer }, row) => {
    const y = top + 28 * row;
    const [end, middle] = [x(seconds), x(state.fixed)];
    pen.text(left - 8, y + 14, FORMATS[row], `end bold ${HUES[FORMATS[row]]}`);
    pen.rect(left, y, middle - left, 20, "fill orange", 3);
    pen.rect(middle, y, end - middle, 20, `fill ${longer === "memory" ? "purple" : "green"}`, 3);
    pen.text(end + 8, y + 14, duration(seconds), "bold");
  });
  const entries = [
    ["fill orange", "fixed cost"],
    ["fill green", "arithmetic"],
    ["fill purple", "moving bytes"],
  ];
  legend(pen, entries, { left, right, top: top + 28 * found.length + 3 });
}

function places({ width, narrow }) {
  if (narrow) {
    return {
      plane: { left: 46, right: width - 8, top: 24, bottom: 230 },
      curve: { left: 46, right: width - 8, top: 300, bottom: 410 },
      bars: { left: 46, right: width, top: 464 },
    };
  }
  const split = Math.round(width * 0.61);
  return {
    plane: { left: 50, right: split - 14, top: 24, bottom: 262 },
    curve: { left: split + 38, right: width - 6, top: 24, bottom: 262 },
    bars: { left: 50, right: width, top: 316 },
  };
}

const LIMITS = {
  "fixed cost": "Most of the time is the fixed cost of a call, which no format shortens.",
  arithmetic: "Arithmetic is the limit: the higher roof counts.",
  memory: "Moving bytes is the limit: half the bytes, half the time.",
};

function inWords(state) {
  const [full, half] = FORMATS.map((format) => layer({ ...state, format }));
  const size = `Width ${state.width.toLocaleString("en")}`;
  const change = `${duration(full.seconds)} in fp32, ${duration(half.seconds)} in bf16`;
  const { peak } = MACHINES[state.machine];
  const slow = half.limit === "arithmetic" && peak.bf16 < peak.fp32;
  const why = slow ? "This machine emulates bf16: its roof is lower." : LIMITS[half.limit];
  return `${size}: ${change}, ${times(full.seconds / half.seconds)} as fast. ${why}`;
}

function render({ el }) {
  const state = { ...OPENS };
  const grips = {};
  const visited = trail();
  const frame = new Frame(el, {
    name: "roofline",
    ask:
      "Of the layers 128, 256, 512 and 1,024 wide, " +
      "which is the narrowest that bf16 makes at least 1.5 times as fast?",
    task: "Drag the dot under the roofs. Then try another machine.",
    caption: "",
    state,
    height: (width) => (width < NARROW ? 550 : 405),
    draw: (pen, now, size) => {
      const area = places(size);
      const plane = drawPlane(pen, now, area.plane);
      grips.plane?.(...drawDots(pen, now, plane, area.plane));
      grips.curve?.(...drawCurve(pen, now, visited(now), area.curve));
      drawBars(pen, now, area.bars);
      return inWords(now);
    },
  });
  const text = (value) => value.toLocaleString("en");
  const options = BETS.map((width) => [width, text(width)]);
  frame.bet({ name: "width", options, answer, play: (width) => ({ width }) });
  frame.slider({
    name: "width",
    label: "width of the layer",
    values: WIDTHS,
    text,
  });
  frame.menu({
    name: "machine",
    label: "machine",
    options: Object.entries(MACHINES).map(([key, { label }]) => [key, label]),
  });
  frame.slider({
    name: "rows",
    label: "rows (batch size)",
    values: steps(5, 14, 1).map((power) => 2 ** power),
    text,
  });
  frame.slider({
    name: "fixed",
    label: "fixed cost of a call",
    values: [0, 1, 2, 5, 10, 20, 50, 100].map((micro) => micro * 1e-6),
    text: duration,
  });
  const stage = () => places(frame.size());
  grips.plane = frame.grip({
    name: "width",
    label: "width of the layer, under the roof",
    values: WIDTHS,
    text,
    from: (x) => {
      const { left, right, top, bottom } = stage().plane;
      const plane = axes(state, left, right, top, bottom);
      const at = (width) => layer({ ...state, width, format: "bf16" }).intensity;
      return WIDTHS[nearest(WIDTHS.map((width) => plane.x(at(width))), x)];
    },
  });
  grips.curve = frame.grip({
    name: "width",
    label: "width of the layer, on the speed-up curve",
    look: "orange",
    values: WIDTHS,
    text,
    from: (x) => across(stage().curve).back(x),
  });
  const caption = frame.root.querySelector(".xp-caption");
  frame.watch(() => {
    caption.textContent =
      "Simulated: time = fixed cost + the longer of (operations ÷ peak) and (bytes ÷ bandwidth), " +
      "for one linear layer, without the conversions between formats. " +
      `Peaks are published, not measured: ${MACHINES[state.machine].source}. ` +
      "The fixed cost is assumed. The panel below measures your machine.";
  });
  return () => frame.close();
}

export { answer, layer, speedup, BETS, MACHINES, OPENS, WIDTHS };
export default { render };
