// The chart of a race: the metric against training seconds, both sides, while it goes on.

// [[side, reached, live, points], ...] out of one row of numbers.
function curvesOf(state) {
  const numbers = floats(state.points);
  let begin = 0;
  return (state.curves ?? []).map(([side, count, reached, last]) => {
    const points = Array.from({ length: count }, (_, i) => {
      const place = 2 * (begin + i);
      return [numbers[place], numbers[place + 1]];
    });
    begin += count;
    return { side, reached, live: last && state.running, points };
  });
}

function drawRace(canvas, state) {
  const sheet = paper(canvas);
  if (!sheet) return;
  const { ink, width, height, colour } = sheet;
  const curves = curvesOf(state);
  const all = curves.flatMap((curve) => curve.points);
  const [left, right, top, bottom] = [46, width - 14, 12, height - 34];
  const most = Math.max(1e-9, state.seconds ?? 0, ...all.map(([seconds]) => seconds)) * 1.03;
  const values = [state.target ?? 0, ...all.map(([, metric]) => metric)];
  const span = Math.max(...values) - Math.min(...values) || 1;
  const [low, high] = [Math.min(...values) - 0.06 * span, Math.max(...values) + 0.06 * span];
  const x = (seconds) => left + ((right - left) * seconds) / most;
  const y = (metric) => top + ((bottom - top) * (high - metric)) / (high - low);

  ink.textAlign = "right";
  for (const tick of evenTicks(low, high)) {
    ink.fillStyle = colour("faint");
    ink.fillText(`${+tick.toPrecision(3)}`, left - 6, y(tick));
    ink.fillStyle = colour("line");
    ink.fillRect(left, y(tick) - 0.5, right - left, 1);
  }
  ink.textAlign = "center";
  ink.fillStyle = colour("faint");
  for (const tick of evenTicks(0, most)) {
    ink.fillText(`${+tick.toPrecision(3)}`, x(tick), bottom + 10);
  }
  ink.textAlign = "left";
  ink.fillText(`${state.metric ?? "metric"} against training time in seconds`, left, height - 7);

  ink.strokeStyle = colour("text");
  line(ink, [[left, y(state.target)], [right, y(state.target)]], [2, 3]);
  for (const { side, reached, live, points } of curves) {
    const hue = colour(side ? "candidate" : "baseline");
    ink.strokeStyle = ink.fillStyle = hue;
    ink.lineWidth = live ? 2.5 : 1.5;
    ink.globalAlpha = live || !state.running ? 0.9 : 0.5;
    line(ink, points.map(([seconds, metric]) => [x(seconds), y(metric)]));
    const end = points.at(-1);
    if (end && (reached || live)) {
      ink.beginPath();
      ink.arc(x(end[0]), y(end[1]), reached ? 4 : 3, 0, 7);
      ink.fill();
    }
  }
  ink.globalAlpha = ink.lineWidth = 1;
  drawKey(sheet, right, height - 7);
  // On top of the curves, and at their beginning, where none is near the target yet.
  label(sheet, `target ${state.target}`, left + 4, y(state.target) - 9, colour("text"));
  if (state.seconds) {
    const across = x(state.seconds);
    drawGuess(sheet, state, [[across, bottom], [across, top + 10]]);
  }
}

// Which colour is whose.
function drawKey({ ink, colour }, right, middle) {
  ink.textAlign = "right";
  let place = right;
  for (const [name, side] of [["candidate", "candidate"], ["baseline", "baseline"]]) {
    ink.fillStyle = colour("faint");
    ink.fillText(name, place, middle);
    place -= ink.measureText(name).width + 16;
    ink.fillStyle = colour(side);
    ink.fillRect(place, middle - 4, 12, 8);
    place -= 12;
  }
  ink.textAlign = "left";
}
