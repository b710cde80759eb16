// A job at a glance: the figures that tell whether it is well, its graph, its curves, and one vertex in detail.
import { jobPath } from "../api.js";
import { chart } from "../chart.js";
import { ago, bytes, count, duration, NOTHING, rate } from "../format.js";
import { Graph, legend } from "../graph.js";
import { card, empty, ended, figure, figures } from "../parts.js";
import { link } from "../router.js";
import { h } from "../vdom.js";
import { VertexPanel } from "./vertex.js";

const SERIES_EVERY_MS = 2000;

export class Overview {
  constructor(context) {
    this.context = context;
    this.graph = new Graph();
    this.series = context.resource(jobPath(context.job, "series"));
    this.asked = 0;
    this.panel = null;
  }

  /** New figures of the job have arrived: its curves have gone on too. */
  changed(name) {
    if (name === "overview" || Date.now() - this.asked < SERIES_EVERY_MS) return;
    this.asked = Date.now();
    this.series.reload();
  }

  render({ vertex }) {
    const { store, repaint, job: id } = this.context;
    const now = store.now();
    return [
      this.strip(store.job, store.checkpoints, now),
      h("section", { class: "card graph-card" },
        h("div", { class: "card-head" }, h("h2", {}, "Graph"), legend()),
        store.job.plan?.nodes?.length
          ? this.graph.render(store.job, { link: (v) => link("jobs", id, "vertices", v), selected: vertex, now, changed: repaint })
          : empty("The plan is not known yet.", "It is there as soon as the job is submitted.")),
      this.vertexPanel(vertex),
      this.curves(),
    ];
  }

  strip(job, checkpoints, now) {
    const sum = (values) => (values.some((v) => v !== null && v !== undefined) ? values.reduce((a, b) => a + (b ?? 0), 0) : null);
    const sources = new Set((job.plan?.nodes || []).filter((node) => !node.inputs?.length).map((node) => node.id));
    const sinks = endsOf(job.plan?.nodes || []);
    const over = (ids, field) => sum(job.vertices.filter((v) => ids.has(v.id)).map((v) => v[field]));
    const latest = checkpoints?.latest?.completed;
    const failed = checkpoints?.counts?.failed || 0;
    const restarts = job.restarts ?? checkpoints?.counts?.restored ?? 0;
    const worst = job.vertices.reduce((a, b) => ((b.backpressured ?? -1) > (a?.backpressured ?? -1) ? b : a), null);
    return figures(
      figure("Read", ended(job.state) ? count(total(job, sources)) : rate(over(sources, "records-out-per-second") ?? over(sources, "records-in-per-second")), ended(job.state) ? "records" : `${count(total(job, sources))} records`),
      figure("Written", ended(job.state) ? count(total(job, sinks, "read-records")) : rate(over(sinks, "records-in-per-second")), ended(job.state) ? "records" : `${count(total(job, sinks, "read-records"))} records`),
      figure("Latency", ended(job.state) ? NOTHING : duration(job["latency-ms"]), "from read to done"),
      figure("Last checkpoint", latest ? ago(latest.latest_ack_timestamp, now) : "none yet",
        latest ? `${duration(latest.end_to_end_duration)}, ${bytes(latest.checkpointed_size)}` : null),
      figure("Failed checkpoints", count(failed), null, { tone: failed ? "warn" : "" }),
      figure("State", bytes(sum(job.vertices.map((v) => v["state-bytes"])))),
      figure("Restarts", count(restarts), restarts ? "see Exceptions" : null, { tone: restarts ? "warn" : "" }),
      worst && (worst.backpressured ?? 0) >= 0.1 ? figure("Waits most", `${Math.round(worst.backpressured * 100)} %`, worst.name, { tone: "warn" }) : null);
  }

  vertexPanel(vertex) {
    if (this.panel && this.panel.vertex !== vertex) {
      this.panel.dispose();
      this.panel = null;
    }
    if (!vertex) return null;
    this.panel ||= new VertexPanel(this.context, vertex);
    return this.panel.render();
  }

  curves() {
    const series = this.series.data;
    if (!series?.timestamps?.length) {
      return card("Curves", this.series.error ? empty("There are no curves.", this.series.error.message)
        : empty("No curve yet.", "The first points come a few seconds after the start."));
    }
    const at = (field) => series[field] || [];
    const one = (title, field, format, colour) =>
      chart({ title, format, timestamps: series.timestamps, curves: [{ name: title, colour, values: at(field) }] });
    return h("section", { class: "curves", "aria-label": "Curves" },
      chart({
        title: "Records", format: rate, timestamps: series.timestamps,
        curves: [
          { name: "in", colour: "curve-1", values: at("records-in-per-second") },
          { name: "out", colour: "curve-2", values: at("records-out-per-second") },
        ],
      }),
      one("Latency", "latency-ms", duration, "curve-3"),
      one("Checkpoint duration", "checkpoint-duration-ms", duration, "curve-1"),
      one("Checkpoint size", "checkpoint-bytes", bytes, "curve-2"));
  }

  dispose() {
    this.panel?.dispose();
  }
}

function endsOf(nodes) {
  const read = new Set(nodes.flatMap((node) => (node.inputs || []).map((input) => input.id)));
  return new Set(nodes.filter((node) => !read.has(node.id)).map((node) => node.id));
}

function total(job, ids, field = "write-records") {
  return job.vertices.filter((vertex) => ids.has(vertex.id)).reduce((sum, vertex) => sum + (vertex.metrics?.[field] ?? 0), 0);
}
