// @ts-check
// HookRuns: what was measured, as a small plot and a table.

import { counted, find, h, reconcile, setAge, setAttribute, setCells, setText } from "./elements.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, EDGE] = [220, 44, 4];

/** Shows these runs. @param {Element} parent @param {any[]} runs */
export function drawRuns(parent, runs) {
  reconcile(parent, runs, (run) => run.name, createRun, updateRun);
}

/** @param {any} run */
function createRun(run) {
  return h(
    "details",
    { class: "run", open: run.failed },
    h(
      "summary",
      {},
      h("span", { class: "badge" }),
      " ",
      h("b", { class: "point" }),
      " ",
      h("span", { class: "subject" }),
      " ",
      h("span", { class: "since" }, h("time"), " ago"),
    ),
    h("p", { class: "message" }),
    h("p", { class: "run-name", text: run.name }),
    h("div", { class: "metrics" }),
  );
}

/** @param {HTMLElement} element @param {any} run */
function updateRun(element, run) {
  setAttribute(find(element, ".badge"), "class", `badge ${run.tone}`);
  setText(find(element, ".badge"), run.phase);
  setText(find(element, ".point"), run.point ?? "Manual");
  setText(find(element, ".subject"), run.subject);
  setAge(find(element, "time"), run.created);
  setText(find(element, ".message"), run.summary);
  reconcile(find(element, ".metrics"), run.metrics, (metric) => metric.name, createMetric, updateMetric);
}

/** @param {any} metric */
function createMetric(metric) {
  return h(
    "figure",
    { class: "metric" },
    h("figcaption", {}, h("b", { text: metric.name }), " ", h("span", { class: "phase" })),
    h("div", { class: "plot" }),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "group", "aria-label": `Measurements of ${metric.name}` },
      h(
        "table",
        { class: "plain" },
        h(
          "thead",
          {},
          h("tr", {}, ...["Measured", "Value", "Result", "Message"].map((text) => h("th", { scope: "col", text }))),
        ),
        h("tbody"),
      ),
    ),
  );
}

/** @param {HTMLElement} element @param {any} metric */
function updateMetric(element, metric) {
  setText(find(element, ".phase"), `${metric.phase}, ${counted(metric.count, "measurement")}`);
  const newest = metric.measurements.slice().reverse();
  const first = metric.count - metric.measurements.length;
  reconcile(
    find(element, "tbody"),
    newest,
    (_, index) => String(first + newest.length - index),
    () =>
      h("tr", {}, h("td", {}, h("time"), " ago"), h("td", { class: "value" }), h("td"), h("td", { class: "message" })),
    (row, it) => {
      setAge(find(row, "time"), it.at);
      setCells(row, 1, [it.value ?? "–", it.phase, it.message]);
    },
  );
  const values = metric.measurements.map((/** @type {any} */ it) => Number.parseFloat(it.value));
  const plot = find(element, ".plot");
  const isNumeric = values.length > 1 && values.every(Number.isFinite);
  plot.replaceChildren(...(isNumeric ? [line(metric.name, values, metric.measurements)] : []));
}

/** The measured values as a line, with a dot for each. @param {string} name @param {number[]} values @param {any[]} measurements */
function line(name, values, measurements) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const x = (/** @type {number} */ i) => EDGE + (i * (WIDTH - 2 * EDGE)) / (values.length - 1);
  const y = (/** @type {number} */ v) =>
    high === low ? HEIGHT / 2 : HEIGHT - EDGE - ((v - low) * (HEIGHT - 2 * EDGE)) / (high - low);
  const svg = svgElement("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    width: WIDTH,
    height: HEIGHT,
    role: "img",
    "aria-label": `${name} from ${values[0]} to ${values[values.length - 1]}, between ${low} and ${high}`,
  });
  svg.append(
    svgElement("polyline", { points: values.map((v, i) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`).join(" ") }),
  );
  values.forEach((v, i) => {
    const phase = measurements[i].phase === "Successful" ? "good" : "bad";
    svg.append(svgElement("circle", { cx: x(i).toFixed(1), cy: y(v).toFixed(1), r: 2.5, class: phase }));
  });
  return svg;
}

/** @param {string} name @param {Record<string, any>} attributes */
function svgElement(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  return element;
}
