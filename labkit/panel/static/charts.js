// The canvas: what all charts share, and the chart of a comparison's ratios.

// A canvas of the size of its box, ready to be drawn on; null while it is out of sight.
function paper(canvas) {
  const box = canvas.parentElement;
  const [width, height] = [box.clientWidth, box.clientHeight];
  if (!width || !height) return null;
  const scale = window.devicePixelRatio || 1;
  [canvas.width, canvas.height] = [width * scale, height * scale];
  const ink = canvas.getContext("2d");
  ink.scale(scale, scale);
  const style = getComputedStyle(box);
  const colour = (name) => style.getPropertyValue(`--labkit-${name}`);
  ink.font = `11px ${style.fontFamily}`;
  ink.textBaseline = "middle";
  return { ink, width, height, colour };
}

function line(ink, points, dashes = []) {
  ink.setLineDash(dashes);
  ink.beginPath();
  points.forEach(([x, y]) => ink.lineTo(x, y));
  ink.stroke();
  ink.setLineDash([]);
}

// A text on a scrap of paper, so that it can be read on top of points.
function label({ ink, colour }, text, x, y, hue) {
  const width = ink.measureText(text).width;
  const left = ink.textAlign === "right" ? x - width : x;
  ink.fillStyle = colour("paper");
  ink.fillRect(left - 3, y - 7, width + 6, 14);
  ink.fillStyle = hue;
  ink.fillText(text, x, y);
}

const POWERS = [-6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6];
const DECADES = POWERS.flatMap((power) => [1, 2, 5].map((digit) => Number(`${digit}e${power}`)));

// About five round numbers from least to most.
function evenTicks(least, most) {
  const step = DECADES.find((value) => (most - least) / value <= 5) ?? 1;
  const first = Math.ceil(least / step - 1e-9);
  const ticks = Array.from({ length: 7 }, (_, i) => +((first + i) * step).toPrecision(6));
  return ticks.filter((tick) => tick <= most + step / 1e6);
}

// What decides the scale: the bulk of the points, since an outlier must not flatten the rest; the
// latest interval; recorded machines; and the guess, where it does not flatten everything.
function ratioScale(points, bands, state) {
  const sorted = Array.from(points).sort((a, b) => a - b);
  const at = (part) => sorted[Math.round(part * (sorted.length - 1))] ?? 1;
  const ends = [...bands.slice(-2), ...(state.recorded ?? []).map(([, ratio]) => ratio)];
  if (state.guess) ends.push(state.guess);
  const low = Math.log(Math.min(0.97, at(0.05), ...ends)) - 0.04;
  const high = Math.log(Math.max(1.03, at(0.95), ...ends)) + 0.04;
  return { low, high, middle: at(0.5) };
}

function drawTicks(sheet, y, { low, high }, left, right) {
  const { ink, colour } = sheet;
  const [least, most] = [Math.exp(low), Math.exp(high)];
  const ticks = [1];
  // Even steps, or decades where the scale is visibly logarithmic.
  for (const tick of most / least > 4 ? DECADES : evenTicks(least, most)) {
    const free = ticks.every((other) => Math.abs(y(tick) - y(other)) > 13);
    if (tick >= least && tick <= most && free) ticks.push(tick);
  }
  ink.textAlign = "right";
  for (const tick of ticks) {
    ink.fillStyle = colour(tick === 1 ? "text" : "faint");
    ink.fillText(`${+tick.toPrecision(3)}×`, left - 6, y(tick));
    if (tick !== 1) ink.fillStyle = colour("line");
    ink.fillRect(left, y(tick) - 0.5, right - left, 1);
  }
}

function drawBand(sheet, bands, x, y) {
  const { ink, colour } = sheet;
  const last = bands.length / 3;
  const corners = [];
  for (let i = 0; i < last; i++) corners.push([x(bands[3 * i]), y(bands[3 * i + 1])]);
  for (let i = last - 1; i >= 0; i--) corners.push([x(bands[3 * i]), y(bands[3 * i + 2])]);
  ink.beginPath();
  corners.forEach(([across, down]) => ink.lineTo(across, down));
  ink.closePath();
  ink.fillStyle = ink.strokeStyle = colour("band");
  ink.fill();
  // An interval too narrow to fill is still a line.
  ink.stroke();
}

const DASHES = [[7, 4], [2, 3], [9, 3, 2, 3]];

// Ratios of pairs of blocks against their number, the interval as it narrowed, and the guess.
function drawTimes(canvas, state) {
  const sheet = paper(canvas);
  if (!sheet) return;
  const { ink, width, height, colour } = sheet;
  const points = floats(state.points);
  // (pairs, low, high) after each update.
  const bands = floats(state.bands);
  const [left, right, top, bottom] = [46, width - 12, 10, height - 22];
  const scale = ratioScale(points, bands, state);
  const pairs = Math.max(state.pairs || 0, 8);
  const x = (pair) => left + ((right - left) * pair) / pairs;
  const y = (ratio) => {
    const part = (scale.high - Math.log(ratio)) / (scale.high - scale.low);
    return top + (bottom - top) * Math.min(1, Math.max(0, part));
  };
  if (state.floor) {
    const [upper, lower] = [y(Math.exp(state.floor)), y(Math.exp(-state.floor))];
    ink.fillStyle = colour("floor");
    ink.fillRect(left, upper, right - left, lower - upper);
  }
  drawTicks(sheet, y, scale, left, right);
  const pairsTaken = state.pairs && `${state.pairs} ${state.pairs === 1 ? "pair" : "pairs"}`;
  const count = [pairsTaken, state.left].filter(Boolean).join(", ");
  ink.fillStyle = colour("faint");
  ink.fillText(count, right, height - 7);
  ink.textAlign = "left";
  const note = state.unrecorded ? `; ${state.unrecorded}` : "";
  const narrow = width < 480;
  const title = narrow ? "Speed-up of each pair" : "Speed-up of each pair of blocks, 95 % interval";
  ink.fillText(`${title}${note}`, left, height - 7);

  ink.strokeStyle = colour("recorded");
  (state.recorded ?? []).forEach(([, ratio], i) => {
    line(ink, [[left, y(ratio)], [right, y(ratio)]], DASHES[i % 3]);
  });
  if (points.length) drawBand(sheet, bands, x, y);
  ink.fillStyle = colour("candidate");
  const radius = points.length > 120 ? 1.6 : 2.3;
  points.forEach((ratio, i) => {
    ink.beginPath();
    ink.arc(x(((i + 0.5) * state.pairs) / points.length), y(ratio), radius, 0, 7);
    ink.fill();
  });
  (state.recorded ?? []).forEach(([name, ratio]) => {
    // Away from the reader's own points.
    const under = y(ratio) > y(scale.middle) && y(ratio) + 16 < bottom;
    const middle = y(ratio) + (under ? 9 : -9);
    label(sheet, `${name}: ${ratio.toFixed(2)}×`, left + 4, middle, colour("recorded"));
  });
  drawGuess(sheet, state, [[left, y(state.guess)], [right, y(state.guess)]]);
}

// The reader's guess: a dashed line that says so at its end.
function drawGuess(sheet, state, ends, text = "your guess") {
  if (!state.guess) return;
  const { ink, colour } = sheet;
  ink.strokeStyle = colour("guess");
  ink.lineWidth = 1.5;
  line(ink, ends, [5, 4]);
  ink.lineWidth = 1;
  ink.textAlign = "right";
  const [across, down] = ends[1];
  const above = down > 20 ? down - 8 : down + 9;
  label(sheet, `${text} ${+state.guess.toPrecision(2)}×`, across - 4, above, colour("guess"));
  ink.textAlign = "left";
}
