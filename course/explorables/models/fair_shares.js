// 13: sentences in trays, what a token of each counts, and what a tray keeps in memory.

// Tokens of each sentence.
const SENTENCES = [2, 3, 3, 4, 6, 7, 9, 12, 15, 18, 20, 21];
const ALL = sum(SENTENCES);
const COUNTS = steps(1, 6, 1);
// By what the sum of a tray's losses is divided.
const DIVISORS = { own: "own tokens × trays", all: "tokens of all trays", only: "own tokens" };
// The shortest sentence has a tray of its own.
const LONE = [0, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2];
const OPENS = { count: 4, divide: "own", trays: LONE, deal: 0 };
const BETS = [1, 4, 15, 60];

// The sentences of each tray, the longest first.
function inTrays({ count, trays }) {
  return steps(0, count - 1, 1).map((tray) =>
    SENTENCES.filter((_, i) => trays[i] === tray).sort((a, b) => b - a),
  );
}

const tokensOf = (state) => inTrays(state).map(sum);

// How many times its right weight, 1 / ALL, a token of a tray with so many tokens counts.
function counts(tokens, { count, divide }) {
  if (divide === "all") return 1;
  return ALL / tokens / (divide === "own" ? count : 1);
}

// By how much a token's weight is off on average, as a share of the right one.
function off(state) {
  const each = tokensOf(state).map((tokens) =>
    tokens ? tokens * Math.abs(counts(tokens, state) - 1) : 0,
  );
  return sum(each) / ALL;
}

const isFair = (state) => off(state) < 1e-9;

// Squares that each tray keeps: every sentence is as long as the longest one.
function memory(state) {
  return inTrays(state).map((sentences) => {
    const all = sentences.length * Math.max(0, ...sentences);
    return { all, padding: all - sum(sentences) };
  });
}

const peak = (state) => Math.max(...memory(state).map(({ all }) => all));

// ---------------------------------------------------------------- packings

// As a shuffled data set is: equally many sentences in each tray, up to one.
function dealt(count, seed) {
  const next = uniform(seed + 1);
  const order = SENTENCES.map((_, i) => [next(), i]).sort((a, b) => a[0] - b[0]);
  const trays = Array(SENTENCES.length);
  order.forEach(([, sentence], place) => (trays[sentence] = place % count));
  return trays;
}

// Sentences of like length in one tray, equally many in each, up to one.
const sorted = (count) =>
  SENTENCES.map((_, i) => Math.floor(((SENTENCES.length - 1 - i) * count) / SENTENCES.length));

// The longest sentence first, each into the tray with the fewest tokens.
function balanced(count) {
  const tokens = Array(count).fill(0);
  const trays = Array(SENTENCES.length);
  for (let i = SENTENCES.length - 1; i >= 0; i--) {
    trays[i] = tokens.indexOf(Math.min(...tokens));
    tokens[trays[i]] += SENTENCES[i];
  }
  return trays;
}

// The sentence of 2 tokens alone in the first tray, the others in the rest.
function lone(count) {
  if (count === OPENS.count) return LONE;
  return SENTENCES.map((_, i) => (i && count > 1 ? 1 + ((i - 1) % (count - 1)) : 0));
}

// The lowest peak of all packings. One of the best has sentences of like length together.
function lowest(count) {
  const length = SENTENCES.length;
  // Of the first so many sentences, in so many trays.
  let best = steps(0, length, 1).map((end) => (end ? end * SENTENCES[end - 1] : 0));
  for (let trays = 2; trays <= count; trays++) {
    best = best.map((_, end) => {
      const ways = steps(0, end, 1).map((begin) =>
        Math.max(best[begin], begin < end ? (end - begin) * SENTENCES[end - 1] : 0),
      );
      return Math.min(...ways);
    });
  }
  return best[length];
}

// The lowest peak of those with equally many tokens in each tray; Infinity where there are none.
const lowestEqual = remembered((count) => {
  const room = ALL / count;
  const trays = Array.from({ length: count }, () => ({ tokens: 0, size: 0, longest: 0 }));
  let best = Infinity;
  // The longest sentences first; a new tray is begun once.
  const place = (sentence, most) => {
    if (most >= best) return;
    if (sentence < 0) {
      best = most;
      return;
    }
    const length = SENTENCES[sentence];
    for (const tray of trays) {
      const fresh = !tray.size;
      if (tray.tokens + length <= room) {
        const before = { ...tray };
        Object.assign(tray, { tokens: tray.tokens + length, size: tray.size + 1 });
        tray.longest = Math.max(tray.longest, length);
        place(sentence - 1, Math.max(most, tray.size * tray.longest));
        Object.assign(tray, before);
      }
      if (fresh) break;
    }
  };
  place(SENTENCES.length - 1, 0);
  return best;
});

function remembered(compute) {
  const known = new Map();
  return (key) => {
    if (!known.has(key)) known.set(key, compute(key));
    return known.get(key);
  };
}

// ---------------------------------------------------------------- question and score

// How many times its right weight a token of the shortest sentence counts, alone in its tray.
const answer = (state) => [counts(SENTENCES[0], state)];

function medal(state) {
  if (!isFair(state) || state.count === 1) return "";
  if (peak(state) === lowest(state.count)) return "gold";
  return peak(state) < lowestEqual(state.count) ? "silver" : "bronze";
}

// Two digits, and three where two would be 1.0.
function times(factor) {
  if (factor >= 10) return `${Math.round(factor)}×`;
  return `${factor.toPrecision(factor > 1 && factor < 1.1 ? 3 : 2)}×`;
}
const percent = (share) => `${Math.round(100 * share)} %`;

function inWords(state) {
  const { count, divide } = state;
  if (isFair(state)) return fairly(state);
  const tokens = tokensOf(state);
  const weights = tokens.map((each) => (each ? counts(each, state) : 1));
  const farthest = weights.map((weight) => Math.abs(Math.log(weight)));
  const tray = farthest.indexOf(Math.max(...farthest));
  const share = divide === "own" ? `1/${count} of` : "all of";
  const why = `${tokens[tray]} tokens have ${share} the weight, not ${tokens[tray]}/${ALL}`;
  const worst = `In tray ${tray + 1} each token counts ${times(weights[tray])}: ${why}`;
  if (divide === "only") return `${worst}. The means are added up, and nobody divides by ${count}.`;
  const told = `${worst}. On average a token is off by ${percent(off(state))}.`;
  const longest = SENTENCES[SENTENCES.length - 1];
  const room = ALL / count;
  if (room < longest) return `${told} Fair would be ${room} tokens in each; one has ${longest}.`;
  return `${told} To beat: 0 %, every token grey.`;
}

function fairly(state) {
  const { count, divide } = state;
  const now = `peak ${peak(state)}`;
  if (count === 1) return `One tray is the whole batch: fair, and ${now}.`;
  const [equal, least] = [lowestEqual(count), lowest(count)];
  const prize = medal(state);
  const star = { gold: "★ Gold", silver: "Silver", bronze: "Bronze" }[prize];
  if (prize === "gold") return `${star}: fair, ${now}. No packing into ${count} trays needs less.`;
  if (divide !== "all") {
    const told = `${star}: fair, with ${ALL / count} tokens in each tray; ${now}.`;
    return `${told} Now divide by all tokens: a peak below ${equal} is silver.`;
  }
  const below = `below ${equal}, the peak of equal tokens, is silver`;
  const goal = prize === "silver" ? `${least} is possible` : below;
  return `${star}: so divided, every packing is fair. Pack for memory: ${now}; ${goal}.`;
}
