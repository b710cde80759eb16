// Draws a job's graph: vertices as cards one can click or tab to, edges labelled with how records are partitioned.
import { bytes, count, rate, watermark, words } from "./format.js";
import { layered } from "./layout.js";
import { shares, tone } from "./parts.js";
import { h } from "./vdom.js";

const NARROW = 700;
const CARD = { width: 208, height: 132 };
const LEAST_SCALE = 0.5;

/** Remembers the layout of one plan: placing vertices is needed only when the plan or the width class changes. */
export class Graph {
  constructor() {
    this.width = document.documentElement.clientWidth - 80; // a guess; the first measurement corrects it
    this.fit = true;
    this.observer = null;
  }

  /** The graph of `job`; `link(vertexId)` is where a card leads, `selected` the card that is open. */
  render(job, { link, selected, now, changed }) {
    const nodes = job.plan?.nodes || [];
    const vertices = new Map(job.vertices.map((vertex) => [vertex.id, vertex]));
    const layout = this.place(nodes);
    const scale = this.fit && layout.width > this.width ? Math.max(LEAST_SCALE, this.width / layout.width) : 1;
    const overflows = layout.width > this.width;
    return h("div", { class: "graph-frame" },
      overflows && layout.right ? h("button", {
        type: "button", class: "button small graph-fit", onclick: () => { this.fit = !this.fit; changed(); },
      }, this.fit ? "Actual size" : "Fit to width") : null,
      h("div", {
        class: "graph", role: "group", "aria-label": "Graph of the job",
        mount: (el) => this.observe(el, changed), unmount: () => this.observer?.disconnect(),
      },
        h("div", { class: "graph-sheet", style: { width: `${layout.width * scale}px`, height: `${layout.height * scale}px` } },
          h("div", { class: "graph-plane", style: { width: `${layout.width}px`, height: `${layout.height}px`, transform: `scale(${scale})` } },
            this.lines(layout),
            layout.edges.map((edge) => h("span", { key: `label ${edge.key}`, class: "edge-label", style: at(edge.middle) }, edge.label)),
            nodes.map((node) => card(node, vertices.get(node.id), layout.nodes.get(node.id), { link, selected, now }))))));
  }

  observe(element, changed) {
    this.observer = new ResizeObserver(([entry]) => {
      const width = Math.floor(entry.contentRect.width);
      if (width === this.width) return;
      this.width = width;
      changed();
    });
    this.observer.observe(element);
  }

  place(nodes) {
    const right = this.width >= NARROW;
    const signature = JSON.stringify([right, nodes.map((node) => [node.id, node.inputs])]);
    if (signature !== this.signature) {
      this.signature = signature;
      this.placed = placed(nodes, right);
    }
    return this.placed;
  }

  lines(layout) {
    return h("svg", { class: "edges", width: layout.width, height: layout.height, "aria-hidden": "true" },
      h("defs", {}, h("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
        h("path", { d: "M0,0 L8,4 L0,8 z", class: "arrow" }))),
      layout.edges.map((edge) => h("path", { key: edge.key, class: "edge", d: edge.path, "marker-end": "url(#arrow)" })));
  }
}

function placed(nodes, right) {
  const size = right
    ? { along: CARD.width, across: CARD.height, gapAlong: 92, gapAcross: 22 }
    : { along: CARD.height, across: CARD.width, gapAlong: 52, gapAcross: 20 };
  if (!nodes.length) return { nodes: new Map(), edges: [], width: 0, height: 0, right };
  const inputs = (node) => (node.inputs || []).map((input) => input.id);
  const result = layered(nodes.map((node) => ({ id: node.id, inputs: inputs(node) })), size);
  const turn = ({ along, across }) => (right ? { x: along, y: across } : { x: across, y: along });
  const labels = new Map(nodes.flatMap((node) => (node.inputs || []).map((input) => [`${input.id} ${node.id}`, words(input.ship_strategy)])));
  return {
    right,
    nodes: new Map([...result.nodes].map(([id, place]) => [id, turn(place)])),
    edges: result.edges.map((edge, i) => {
      const points = edge.points.map(turn);
      return { key: `${edge.from} ${edge.to} ${i}`, path: curve(points, right), middle: middle(points), label: labels.get(`${edge.from} ${edge.to}`) };
    }),
    ...(right ? { width: result.along, height: result.across } : { width: result.across, height: result.along }),
  };
}

/** A smooth line through the points, leaving and entering along the flow. */
function curve(points, right) {
  let path = `M${points[0].x},${points[0].y}`;
  for (let i = 1; i < points.length; i++) {
    const [a, b] = [points[i - 1], points[i]];
    path += right
      ? ` C${(a.x + b.x) / 2},${a.y} ${(a.x + b.x) / 2},${b.y} ${b.x},${b.y}`
      : ` C${a.x},${(a.y + b.y) / 2} ${b.x},${(a.y + b.y) / 2} ${b.x},${b.y}`;
  }
  return path;
}

function middle(points) {
  const [a, b] = points.slice(-2);
  return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
}

const at = ({ x, y }) => ({ left: `${x}px`, top: `${y}px` });

function card(node, vertex, place, { link, selected, now }) {
  const name = vertex?.name || node.description || node.id;
  return h("a", {
    key: node.id, class: `vertex ${heat(vertex)} ${selected === node.id ? "selected" : ""}`, href: link(node.id), "data-vertex": node.id,
    "aria-current": selected === node.id ? "true" : null, style: { ...at(place), width: `${CARD.width}px`, height: `${CARD.height}px` },
  },
    h("span", { class: "vertex-head" },
      h("span", { class: `dot ${tone(vertex?.status)}`, title: String(vertex?.status || "").toLowerCase() }),
      h("span", { class: "vertex-name", title: name }, name),
      h("span", { class: "vertex-parallelism", title: "parallelism" }, `×${count(node.parallelism ?? vertex?.parallelism)}`)),
    h("span", { class: "vertex-rates" },
      h("span", {}, h("small", {}, "in "), h("b", { "data-rate": "in" }, rate(vertex?.["records-in-per-second"]))),
      h("span", {}, h("small", {}, "out "), h("b", { "data-rate": "out" }, rate(vertex?.["records-out-per-second"])))),
    shares(vertex || {}),
    h("span", { class: "vertex-foot" },
      h("span", { title: "watermark" }, h("small", {}, "watermark"), watermark(vertex?.watermark, now)),
      h("span", { title: "state size" }, h("small", {}, "state"), bytes(vertex?.["state-bytes"]))));
}

/** The class of a vertex that deserves a look: one that is busy nearly all the time, or that waits for others. */
function heat(vertex) {
  if (!vertex) return "";
  if ((vertex.backpressured ?? 0) >= 0.5) return "waits";
  return (vertex.busy ?? 0) >= 0.85 ? "hot" : "";
}

export const legend = () =>
  h("p", { class: "legend" },
    ["busy", "back-pressured", "idle"].map((name) => h("span", { key: name }, h("i", { class: name }), name)));

