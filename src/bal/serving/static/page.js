// The page of bal serve: asks /v1/page once and /v1/score for each image, and shows the answers. Nothing is stored.
import { NAMED, aboutHistogram, aboutMap, drawHistogram, drawMap } from "./pictures.js";
import { explanation, factsOf, kindOf, number, numbersOf, sentence, signOf, size, verdictOf } from "./words.js";

const KEPT = 20; // recent decisions
const THUMBNAIL = 192; // pixels
const LEADS = {
  400: "The server did not understand the request.",
  401: "The token is missing or is not the right one.",
  408: "The image came too slowly.",
  413: "The image is too large.",
  415: "This is not an image that can be read.",
  422: "This image cannot be used.",
  500: "The model failed on this image.",
  503: "The server is busy or about to stop.",
  504: "The server was too slow.",
};

let detector = null; // the answer of /v1/page
let token = "";
let decisions = []; // newest first: {name, answer, picture, small}
let shown = null; // one of them

const byId = (id) => document.getElementById(id);

function make(tag, { text, ...attributes } = {}, ...children) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Asking

class Problem extends Error {
  constructor(words, status = 0) {
    super(words);
    this.status = status;
  }
}

async function ask(path, options = {}) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store" });
  } catch {
    throw new Problem("The server cannot be reached. Is it still running?");
  }
  const said = await response.json().catch(() => ({}));
  if (response.ok) return said;
  const lead = LEADS[response.status] || `The server answered ${response.status}.`;
  throw new Problem(said.error ? `${lead} ${sentence(said.error)}` : lead, response.status);
}

async function open() {
  try {
    detector = await ask("v1/page");
  } catch (problem) {
    if (problem.status === 401) lock(token ? "That is not the right token." : "");
    else byId("trouble").textContent = problem.message;
    byId("trouble").hidden = problem.status === 401;
    return;
  }
  byId("locked").hidden = byId("trouble").hidden = true;
  byId("content").hidden = false;
  describe();
  draw();
}

function lock(words) {
  byId("locked").hidden = false;
  byId("content").hidden = true;
  byId("token-problem").textContent = words;
  byId("token-problem").hidden = !words;
  byId("token").focus();
}

async function scoreAll(files) {
  if (detector && detector.takes_images) for (const file of [...files].slice(0, KEPT)) await score(file.name, file);
}

async function score(name, blob) {
  byId("result").setAttribute("aria-busy", "true");
  try {
    if (blob.size > detector.max_bytes) {
      throw new Problem(`${LEADS[413]} It has ${size(blob.size)}, and the server takes ${size(detector.max_bytes)} at most.`);
    }
    const answer = await ask("v1/score", { method: "POST", body: blob });
    shown = { name, answer, ...(await thumbnail(blob)) };
    decisions = [shown, ...decisions].slice(0, KEPT);
    listDecisions();
    showDecision();
  } catch (problem) {
    showProblem(name, problem.message);
    if (problem.status === 401) lock(problem.message);
  } finally {
    byId("result").removeAttribute("aria-busy");
  }
}

async function thumbnail(blob) {
  try {
    const image = await createImageBitmap(blob);
    const shrink = Math.min(1, THUMBNAIL / Math.max(image.width, image.height));
    const canvas = document.createElement("canvas");
    canvas.width = Math.max(1, Math.round(image.width * shrink));
    canvas.height = Math.max(1, Math.round(image.height * shrink));
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return { picture: canvas.toDataURL("image/png"), small: shrink === 1 };
  } catch {
    return { picture: "", small: false }; // the server could read it, this browser cannot
  }
}

function toBlob(address) {
  const letters = atob(address.split(",")[1]);
  return new Blob([Uint8Array.from(letters, (letter) => letter.charCodeAt(0))], { type: "image/png" });
}

// Showing

function describe() {
  const { model, classifier, classes } = detector;
  document.title = `bal: ${model}`;
  byId("lead").textContent = classes && classes.length <= NAMED ? `What is known here: ${classes.join(", ")}.`
    : `${classifier.classes} classes are known here.`;
  const facts = Object.entries(factsOf(detector)).flatMap(([name, text]) => [make("dt", { text: name }), make("dd", { text })]);
  byId("facts").replaceChildren(...facts);
  byId("histogram-note").textContent = aboutHistogram(detector.histogram);
  byId("map-note").textContent = aboutMap(detector.map);
  const counted = "what it asks counts in the metrics like any request";
  byId("footer").textContent = `bal ${detector.bal}. This page asks nobody but this server; ${counted}.`;
  byId("drop").hidden = !detector.takes_images;
  byId("samples").replaceChildren(...(detector.takes_images ? samples() : [make("p", { class: "note", text: noImages() })]));
}

function noImages() {
  const inputs = `inputs of shape ${detector.shape.join(" × ")}`;
  return `This detector takes ${inputs}, which no image file becomes; use /v2/models/${detector.model}/infer.`;
}

function samples() {
  const kinds = [...new Set(detector.samples.map((sample) => sample.kind))];
  return kinds.flatMap((kind) => {
    const buttons = detector.samples.filter((sample) => sample.kind === kind).map(sampleButton);
    return [make("h3", { text: `Or one of ${kind}` }), make("div", { class: "pictures", role: "group", "aria-label": kind }, ...buttons)];
  });
}

function sampleButton({ kind, name, address }) {
  const button = make("button", { type: "button", title: name }, make("img", { src: address, alt: `${kind}: ${name}` }));
  button.addEventListener("click", () => score(`${kind}: ${name}`, toBlob(address)));
  return button;
}

function pictureOf({ picture, small }, alt) {
  return picture ? make("img", { src: picture, alt, class: small ? "small" : "" }) : make("span");
}

function showDecision() {
  const { answer, name } = shown;
  const warnings = answer.warnings.map((text) => make("p", { class: "warning", text: sentence(text) }));
  showVerdict(kindOf(answer), signOf(answer), verdictOf(detector, answer), explanation(detector, answer), name, pictureOf(shown, name));
  byId("details").replaceChildren(numbers(answer), ...warnings);
}

function showProblem(name, words) {
  shown = null;
  showVerdict("problem", "!", "No answer", words, name);
  byId("details").replaceChildren();
}

function showVerdict(kind, sign, title, words, name, ...pictures) {
  const text = [make("p", { class: "answer", "data-sign": sign, text: title }), make("p", { class: "said", text: words })];
  byId("verdict").className = `verdict ${kind}`;
  byId("details").className = kind;
  byId("verdict").replaceChildren(...pictures, make("div", {}, ...text, make("p", { class: "note", text: name })));
  byId("verdict").scrollIntoView({ block: "nearest" });
  draw();
}

function numbers(answer) {
  const cells = numbersOf(detector, answer).flatMap(([name, value, why]) => {
    const filled = make("div");
    filled.style.width = `${100 * Math.min(1, Math.max(0, value || 0))}%`;
    const gauge = make("div", { class: "gauge", "aria-hidden": "true" }, filled);
    const words = [make("span", { class: "value", text: number(value) }), make("p", { class: "why", text: why })];
    return [make("span", { class: "what", text: name }), gauge, ...words];
  });
  return make("div", { class: "numbers" }, ...cells);
}

function listDecisions() {
  byId("recent-note").textContent = `The last ${KEPT} at most, kept in this page alone; the server keeps no images.`;
  byId("decisions").replaceChildren(...decisions.map((decision) => make("li", {}, decisionButton(decision))));
}

function decisionButton(decision) {
  const { answer, name } = decision;
  const title = make("strong", { class: kindOf(answer), text: `${signOf(answer)} ${verdictOf(detector, answer)}` });
  const words = [name, `confidence ${number(answer.confidence)}`].map((text) => make("span", { text }));
  const button = make("button", { type: "button" }, pictureOf(decision, ""), make("span", {}, title, ...words));
  button.addEventListener("click", () => {
    shown = decision;
    showDecision();
  });
  return button;
}

function draw() {
  if (!detector) return;
  drawHistogram(byId("histogram"), detector, shown);
  drawMap(byId("map"), detector, decisions, shown);
}

// What people do

byId("file").addEventListener("change", (event) => {
  const files = [...event.target.files];
  event.target.value = ""; // so that the same file can be chosen again
  scoreAll(files);
});
for (const name of ["dragenter", "dragover"]) byId("drop").addEventListener(name, () => byId("drop").classList.add("over"));
for (const name of ["dragleave", "drop"]) byId("drop").addEventListener(name, () => byId("drop").classList.remove("over"));
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  event.preventDefault(); // anywhere on the page is right
  scoreAll(event.dataTransfer.files);
});
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  byId("token").value = "";
  if (/^[\x21-\x7e]+$/.test(token)) open();
  else lock("A token has letters, digits and signs, without spaces.");
});
const observer = new ResizeObserver(draw);
observer.observe(byId("histogram"));
observer.observe(byId("map"));
open();
