// Means, intervals, ranks, and numbers in words. Missing values are null.

const known = (values) => values.filter((value) => value !== null && value !== undefined);

const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);

/** The sample standard deviation; null for fewer than two values. */
function deviation(values) {
  if (values.length < 2) return null;
  const centre = mean(values);
  return Math.sqrt(values.reduce((sum, value) => sum + (value - centre) ** 2, 0) / (values.length - 1));
}

/** Half the width of Student's 95 % interval of the mean; `quantiles`: by degrees of freedom, from 1. */
function halfInterval(values, quantiles) {
  const spread = deviation(values);
  const quantile = quantiles[Math.min(values.length - 1, quantiles.length) - 1];
  return spread === null ? null : (quantile * spread) / Math.sqrt(values.length);
}

/** Ranks from 1 of items in an order, by a function that is 0 for equal items; equal items share their mean rank. */
function ranks(items, compare) {
  const sorted = [...items].sort(compare);
  const found = new Map();
  for (let start = 0; start < sorted.length; ) {
    let end = start + 1;
    while (end < sorted.length && compare(sorted[start], sorted[end]) === 0) end += 1;
    for (const item of sorted.slice(start, end)) found.set(item, (start + 1 + end) / 2);
    start = end;
  }
  return found;
}

/** Kendall's τ_b of pairs [x, y]; null if it is not defined. */
function kendall(pairs) {
  let balance = 0, untiedX = 0, untiedY = 0;
  pairs.forEach(([x, y], index) => {
    for (const [otherX, otherY] of pairs.slice(index + 1)) {
      const signX = Math.sign(x - otherX), signY = Math.sign(y - otherY);
      balance += signX * signY;
      untiedX += Math.abs(signX);
      untiedY += Math.abs(signY);
    }
  });
  return untiedX && untiedY ? balance / Math.sqrt(untiedX * untiedY) : null;
}

/** Items that no other item beats in cost (lower is better) and value (higher is better), cheapest first. */
function paretoFront(items, cost, value) {
  const sorted = [...items].sort((one, other) => cost(one) - cost(other) || value(other) - value(one));
  let best = -Infinity;
  return sorted.filter((item) => value(item) > best && ((best = value(item)), true));
}

const MISSING = "–";

/** A number with a fixed number of decimals, with a true minus sign. */
const fixed = (value, decimals) => (value === null ? MISSING : value.toFixed(decimals).replace("-", "−"));

/** A number with three significant digits: 0.0123, 4.56, 12.3 M. */
function short(value) {
  if (value === null) return MISSING;
  const size = Math.abs(value);
  for (const [unit, name] of [[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e4, " k"]]) {
    if (size >= unit) return short(value / (unit === 1e4 ? 1e3 : unit)) + (unit === 1e4 ? " k" : name);
  }
  if (size !== 0 && size < 1e-3) return value.toExponential(2).replaceAll("-", "−");
  return fixed(value, size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}
