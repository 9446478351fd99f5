// The histogram of known scores and the map of features, as SVG in the size of their boxes.
import { className, kindOf, minus, number, percent, raised } from "./words.js";

export const NAMED = 24; // classes that are named on the map
const NARROWEST = 60; // pixels
const CONFIDENCES = [0.9999, 0.999, 0.99, 0.9, 0.5, 0.1, 0.01, 1e-3, 1e-5, 1e-10, 1e-20, 1e-50, 1e-100, 1e-200];

function shape(tag, { text, ...attributes } = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  if (text !== undefined) element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function put(box, width, height, label, shapes) {
  box.replaceChildren(shape("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label }, ...shapes));
}

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const vertical = (kind, x, y1, y2) => shape("line", { class: kind, x1: x, x2: x, y1, y2 });

// The histogram

// Bins have equal widths on the screen, so a score stands where its bin does: 0 to 1, or -1 for what is below them all.
function position(value, edges) {
  const bins = edges.length - 1;
  if (value === null || value < edges[0]) return -1;
  if (value >= edges[bins]) return 1;
  const bin = edges.findIndex((edge) => edge > value) - 1;
  return (bin + (value - edges[bin]) / (edges[bin + 1] - edges[bin])) / bins;
}

function ticks(detector, edges) {
  const short = (p) => (p >= 0.001 ? String(p) : `10${raised(Math.round(Math.log10(p)))}`);
  if (detector.log_probability) return CONFIDENCES.map((p) => [Math.log(p), short(p)]);
  const chosen = [0.9, 0.65, 0.4, 0.15].map((share) => edges[Math.round(share * (edges.length - 1))]);
  return chosen.map((edge) => [edge, minus(String(Number(edge.toPrecision(3))))]);
}

export function drawHistogram(box, detector, shown) {
  const width = box.clientWidth, height = 250, top = 40, floor = height - 34, left = 4, wide = width - 2 * left;
  if (width < NARROWEST) return; // not on the screen
  const { edges, shares } = detector.histogram;
  const across = (share) => left + wide * clamp(share, 0, 1);
  const threshold = shown ? shown.answer.threshold : Array.isArray(detector.threshold) ? null : detector.threshold;
  const cut = threshold === null ? -1 : position(threshold, edges);
  const tallest = Math.max(...shares);
  const shapes = shares.map((share, bin) => {
    const tall = (share / tallest) * (floor - top - 6), place = { x: across(bin / shares.length) + 0.5, y: floor - tall };
    const kind = (bin + 0.5) / shares.length < cut ? "bar out" : "bar";
    return shape("rect", { class: kind, ...place, width: Math.max(1, wide / shares.length - 1.5), height: tall });
  });
  shapes.push(shape("line", { class: "axis", x1: left, x2: left + wide, y1: floor, y2: floor }));
  shapes.push(...tickTexts(ticks(detector, edges), edges, across, floor + 15));
  const unit = detector.log_probability ? "confidence →" : "score →";
  shapes.push(shape("text", { x: left + wide, y: height - 4, "text-anchor": "end", text: unit }));
  if (shown) shapes.push(...scoreMark(shown.answer, position(shown.answer.score, edges), across, floor, width));
  if (cut >= 0) shapes.push(...cutShapes(across(cut), top, floor));
  put(box, width, height, `Histogram. ${aboutHistogram(detector.histogram)}${whereInHistogram(shown)}`, shapes);
}

function tickTexts(wanted, edges, across, y) {
  let last = Infinity;
  return wanted.flatMap(([value, text]) => {
    const share = position(value, edges), x = across(share);
    if (share < 0.03 || share > 0.97 || last - x < 46) return [];
    last = x;
    return [shape("text", { x, y, "text-anchor": "middle", text })];
  });
}

function cutShapes(x, top, floor) {
  const rejected = x > 60 ? [shape("text", { x: x - 5, y: top + 2, "text-anchor": "end", text: "rejected" })] : [];
  return [vertical("cut", x, top - 8, floor), ...rejected, shape("text", { x: x + 5, y: top + 2, text: "accepted" })];
}

function scoreMark(answer, place, across, floor, width) {
  const x = across(place), kind = kindOf(answer), anchor = x < 60 ? "start" : x > width - 60 ? "end" : "middle";
  const text = place < 0 ? "← this image, further down" : "this image";
  return [
    vertical(`needle ${kind}`, x, 22, floor),
    shape("path", { class: `tip ${kind}`, d: `M${x - 6},16 L${x + 6},16 L${x},25 Z` }),
    shape("text", { class: "strong", x, y: 12, "text-anchor": anchor, text }),
  ];
}

function whereInHistogram(shown) {
  if (!shown) return "";
  const { is_ood: rejected, p_value: p } = shown.answer;
  const chance = p === null ? "there is no p-value" : `its p-value is ${number(p)}`;
  return ` This image is ${rejected ? "below" : "at or above"} the threshold; ${chance}.`;
}

export function aboutHistogram({ rows, source }) {
  const known = source === "calibration" ? `Scores of ${rows} known images that the threshold was chosen by`
    : "Scores of training images, since the detector is not calibrated";
  return `${known}; left of the dashed line is rejected.`;
}

// The map

const hasPlace = ({ answer }) => Boolean(answer.map) && answer.map[0] !== null;

export function drawMap(box, detector, decisions, shown) {
  const { map } = detector, width = box.clientWidth, height = Math.round(clamp(width * 0.8, 250, 340));
  if (!map || width < NARROWEST) return;
  const view = frame(map, width, height);
  const at = ([x, y]) => [clamp(view.across(x), 8, width - 8), clamp(view.down(y), 8, height - 8)];
  const circles = (kind, r) => map.centres.map(([x, y]) => shape("circle", { class: kind, cx: view.across(x), cy: view.down(y), r }));
  const others = decisions.filter((decision) => hasPlace(decision) && decision !== shown).reverse();
  const shapes = [
    ...(map.radius === null ? [] : circles("class-ring", map.radius * view.scale)),
    ...circles("class-dot", 2.5),
    ...others.map(({ answer }) => mark(answer, at(answer.map), 4)),
    ...names(detector, view, width, height, shown),
  ];
  if (shown && hasPlace(shown)) {
    const [cx, cy] = at(shown.answer.map);
    shapes.push(shape("circle", { class: "ring", cx, cy, r: 12 }), mark(shown.answer, [cx, cy], 6));
  }
  put(box, width, height, whereOnMap(detector, shown), shapes);
}

function frame(map, width, height) {
  const room = (map.radius || 0) * 1.1, margin = 16;
  const [xs, ys] = [0, 1].map((axis) => map.centres.map((centre) => centre[axis]));
  const [left, right] = [Math.min(...xs) - room, Math.max(...xs) + room], [low, high] = [Math.min(...ys) - room, Math.max(...ys) + room];
  const scale = Math.min((width - 2 * margin) / (right - left || 1), (height - 2 * margin) / (high - low || 1));
  const across = (x) => width / 2 + (x - (left + right) / 2) * scale;
  const down = (y) => height / 2 - (y - (low + high) / 2) * scale;
  return { scale, across, down };
}

function mark(answer, [x, y], r) {
  if (!answer.is_ood) return shape("circle", { class: "mark-known", cx: x, cy: y, r });
  return shape("path", { class: "mark-unknown", d: `M${x - r},${y - r} L${x + r},${y + r} M${x - r},${y + r} L${x + r},${y - r}` });
}

// Names stand right of their class, or left of it near the edge; one that would cover another moves up or down.
function names(detector, { across, down, scale }, width, height, shown) {
  const { centres, radius } = detector.map, away = (radius || 0) * scale + 4;
  const few = centres.length <= NAMED;
  const wanted = [...centres.keys()].filter((label) => few || (shown && shown.answer.predicted === label));
  const boxes = centres.map(([x, y]) => ({ left: across(x) - 4, right: across(x) + 4, y: down(y) + 4 }));
  return wanted.sort((a, b) => centres[b][1] - centres[a][1]).flatMap((label) => {
    const text = className(detector, label), long = 6.6 * text.length;
    const x = across(centres[label][0]), home = down(centres[label][1]) + 4, end = x + away + long > width;
    const left = end ? Math.max(0, x - away - long) : x + away, start = end ? x - away : left;
    const covers = (box, y) => Math.abs(box.y - y) < 13 && left < box.right && box.left < left + long;
    const y = nearest(home, height, (place) => place > 12 && place < height - 2 && !boxes.some((box) => covers(box, place)));
    boxes.push({ left, right: left + long, y });
    const lead = Math.abs(y - home) > 8 ? [shape("line", { class: "lead", x1: x, y1: home - 4, x2: start, y2: y - 4 })] : [];
    const weight = shown && shown.answer.label === label ? "strong" : "";
    return [...lead, shape("text", { class: weight, x: start, y, "text-anchor": end ? "end" : "start", text })];
  });
}

function nearest(wanted, reach, free) {
  for (let step = 0; step < reach; step += 1) {
    if (free(wanted + step)) return wanted + step;
    if (free(wanted - step)) return wanted - step;
  }
  return wanted;
}

function whereOnMap(detector, shown) {
  const { centres } = detector.map, words = `The means of ${centres.length} classes in two dimensions.`;
  if (!shown || !hasPlace(shown)) return words;
  const far = centres.map(([x, y]) => Math.hypot(x - shown.answer.map[0], y - shown.answer.map[1]));
  return `${words} This image is nearest to ${className(detector, far.indexOf(Math.min(...far)))} among them.`;
}

export function aboutMap(map) {
  if (!map) return "This detector keeps no class means to draw a map by.";
  const ring = map.radius === null ? "" : ", in a ring where most of it lies";
  const part = `Two of ${map.dimensions} directions, with ${percent(map.share)} of what parts the class means`;
  return `• the mean of a class${ring}; ● accepted, × rejected, in a circle this image. ${part}: what is off in others can look near.`;
}
