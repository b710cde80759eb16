// One vertex: its subtasks, where they run, how busy they are and how far their event time has come.
import { jobPath } from "../api.js";
import { bytes, count, duration, percent, watermark } from "../format.js";
import { badge, facts, loaded, pill, shares, table } from "../parts.js";
import { link } from "../router.js";
import { Resource } from "../resource.js";
import { h } from "../vdom.js";

const EVERY_MS = 3000;

export class VertexPanel {
  constructor(context, vertex) {
    this.context = context;
    this.vertex = vertex;
    const fetch = (...parts) => new Resource(jobPath(context.job, "vertices", vertex, ...parts), context.repaint, { every: EVERY_MS });
    this.details = fetch();
    this.pressure = fetch("backpressure");
    this.watermarks = fetch("watermarks");
  }

  render() {
    const live = this.context.store.job.vertices.find((vertex) => vertex.id === this.vertex);
    return h("section", { class: "card", key: `vertex ${this.vertex}`, "data-panel": "vertex", mount: (el) => el.scrollIntoView({ block: "nearest" }) },
      h("div", { class: "card-head" }, h("h2", {}, live?.name || this.vertex), h("code", { class: "id" }, this.vertex),
        h("a", { class: "button small", href: link("jobs", this.context.job) }, "Close")),
      loaded(this.details, (details) => [
        facts([
          ["Parallelism", `${count(details.parallelism)} (at most ${count(details.maxParallelism)})`],
          ["Records in", count(live?.metrics?.["read-records"])],
          ["Records out", count(live?.metrics?.["write-records"])],
          ["State", bytes(live?.["state-bytes"])],
        ]),
        this.subtasks(details.subtasks || [])]));
  }

  subtasks(subtasks) {
    const now = this.context.store.now();
    const ratios = new Map((this.pressure.data?.subtasks || []).map((each) => [each.subtask, each]));
    const marks = new Map((this.watermarks.data || []).map(({ id, value }) => [Number(id.split(".")[0]), value]));
    return table([
      { name: "Subtask", number: true, cell: (row) => count(row.subtask) },
      { name: "Status", cell: (row) => [pill(row.status), row.attempt ? badge(`attempt ${row.attempt}`) : null] },
      { name: "Slot", cell: (row) => slot(this.context.job, row) },
      { name: "In", number: true, cell: (row) => records(row, "read") },
      { name: "Out", number: true, cell: (row) => records(row, "write") },
      { name: "Time", cell: (row) => time(ratios.get(row.subtask)) },
      { name: "Watermark", number: true, cell: (row) => watermark(marks.get(row.subtask), now) },
      { name: "Running for", number: true, cell: (row) => duration(row.duration) },
    ], subtasks, { key: (row) => row.subtask, caption: "Subtasks", dense: true });
  }

  dispose() {
    [this.details, this.pressure, this.watermarks].forEach((resource) => resource.dispose());
  }
}

/** Tasks count for a vertex as a whole; its subtasks have no numbers of their own then. */
const records = ({ metrics = {} }, kind) => count(metrics[`${kind}-records-complete`] === false ? null : metrics[`${kind}-records`]);

function slot(job, row) {
  const id = row["taskmanager-id"];
  const name = row.endpoint || row.host || id;
  return id && !id.startsWith("(") ? h("a", { href: link("jobs", job, "slots", id) }, name) : name;
}

function time(ratios) {
  if (!ratios) return shares({});
  const parts = { busy: ratios.busyRatio, backpressured: ratios.ratio, idle: ratios.idleRatio };
  return h("span", { class: "time" }, shares(parts), h("small", {}, parts.backpressured >= 0.005 ? `${percent(parts.busy)} busy, ${percent(parts.backpressured)} waits` : `${percent(parts.busy)} busy`));
}
