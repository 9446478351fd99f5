// Numbers and decisions in words.

const SUPERSCRIPT = { "-": "⁻", ...Object.fromEntries([..."⁰¹²³⁴⁵⁶⁷⁸⁹"].map((sign, digit) => [digit, sign])) };

export const raised = (power) => [...String(Number(power))].map((sign) => SUPERSCRIPT[sign]).join("");
export const minus = (digits) => digits.replace(/^-/, "−");
export const percent = (share) => `${Number((100 * share).toPrecision(2))}\u00a0%`;
export const size = (bytes) => (bytes < 1e6 ? `${Math.ceil(bytes / 1e3)} KB` : `${(bytes / 2 ** 20).toFixed(1)} MiB`);
export const sentence = (words) => words[0].toUpperCase() + words.slice(1) + (/[.!?]$/.test(words) ? "" : ".");

export function number(value) {
  if (value === null) return "none";
  if (value !== 0 && Math.abs(value) < 0.001) {
    const [digits, power] = value.toExponential(1).split("e");
    return minus(`${digits}\u00a0×\u00a010${raised(power)}`);
  }
  if (value < 1 && value > 0.9995) return ">\u00a00.999";
  if (Math.abs(value) < 0.1) return minus(value.toPrecision(2));
  return minus(value.toFixed(Math.abs(value) < 100 ? 3 : 0));
}

export const className = (detector, label) => (detector.classes && detector.classes[label]) || `class ${label}`;
export const kindOf = (answer) => (answer.is_ood ? "unknown" : "known");
export const signOf = (answer) => (answer.is_ood ? "✕" : "✓");
export const verdictOf = (detector, answer) => (answer.is_ood ? "Not something I know" : className(detector, answer.label));

export function explanation(detector, answer) {
  if (!answer.valid) return "The network's numbers for this image are not finite, so it is never accepted.";
  if (!answer.is_ood) return "Accepted: its score reaches the threshold.";
  return `Rejected: its score is below the threshold. The classifier alone would have said ${className(detector, answer.predicted)}.`;
}

// Rows of a name, a number from 0 to 1 and what it means.
export function numbersOf(detector, answer) {
  const needed = detector.log_probability ? ` To be accepted it needs ${number(Math.exp(answer.threshold))}.` : "";
  const meaning = detector.log_probability ? "" : "The share of training images that score lower.";
  const rows = [["confidence", answer.confidence, (answer.p1 === undefined ? meaning : "p1 × p2.") + needed]];
  if (answer.p1 !== undefined) {
    rows.push(["p1", answer.p1, "How sure the classifier is of its class."]);
    rows.push(["p2", answer.p2, "How sure the discriminator is that the feature belongs to this class."]);
  }
  const chance = answer.p_value === null ? "None, since the detector is not calibrated."
    : `A known image scores this low with a probability of ${percent(answer.p_value)} at most.`;
  return [...rows, ["p-value", answer.p_value, chance]];
}

export function factsOf(detector) {
  const { classifier, threshold, false_alarm: rate } = detector;
  const confidence = detector.log_probability ? `, a confidence of ${number(Math.exp(threshold))}` : "";
  return {
    detector: `${detector.detector}, served as ${detector.model}, version ${detector.version}`,
    classifier: `${classifier.name || "unnamed"}, ${classifier.fingerprint.slice(0, 12)}, ${classifier.classes} classes`,
    takes: `inputs of shape ${detector.shape.join(" × ")}`,
    "false alarms": rate === null ? "not calibrated: the threshold keeps 95 % of the training images"
      : `a known image is rejected with a probability of ${percent(rate)} at most`,
    threshold: Array.isArray(threshold) ? "one for each predicted class" : `score ${number(threshold)}${confidence}`,
  };
}
