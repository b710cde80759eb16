// One checkpoint: what it took and contains, by operator, and below an operator by subtask.
import { jobPath } from "../api.js";
import { ago, bytes, count, duration, words } from "../format.js";
import { badge, card, code, facts, figure, figures, loaded, moment, pill, progress, summaryTable, table } from "../parts.js";
import { Resource } from "../resource.js";
import { h } from "../vdom.js";

const EVERY_MS = 1000;

export class CheckpointDetails {
  constructor(context, id) {
    this.context = context;
    this.id = id;
    this.path = ["checkpoints", "details", id];
    this.open = new Map(); // vertex → its subtasks
    this.details = new Resource(jobPath(context.job, ...this.path), () => this.arrived());
  }

  arrived() {
    clearTimeout(this.timer);
    if (this.details.data?.status === "IN_PROGRESS" && !document.hidden) {
      this.timer = setTimeout(() => this.details.reload(), EVERY_MS);
      this.open.forEach((subtasks) => subtasks.reload());
    }
    this.context.repaint();
  }

  render() {
    return h("div", { class: "column", key: `checkpoint ${this.id}`, "data-checkpoint": this.id }, loaded(this.details, (details) => [
      this.head(details),
      details.failure_message ? h("div", { class: "problem" }, h("p", {}, details.failure_message)) : null,
      this.figures(details),
      card("Operators", this.operators(details)),
    ]));
  }

  head(details) {
    return h("div", { class: "detail-head" },
      h("h2", {}, `${details.is_savepoint ? "Savepoint" : "Checkpoint"} #${details.id}`), pill(details.status),
      details.checkpoint_type ? badge(words(details.checkpoint_type)) : null,
      details.discarded ? badge("discarded") : null);
  }

  figures(details) {
    const now = this.context.store.now();
    return [
      figures(
        figure("End to end", duration(details.end_to_end_duration), parts(details)),
        figure("New bytes", bytes(details.checkpointed_size), `${count(details.checkpointed_size)} B`),
        figure("Full size", bytes(details.state_size), `${count(details.state_size)} B`),
        figure("Acknowledged", `${count(details.num_acknowledged_subtasks)} of ${count(details.num_subtasks)}`)),
      card(null, facts([
        ["Triggered", [moment(details.trigger_timestamp, now), ` (${ago(details.trigger_timestamp, now)})`]],
        ["Last acknowledged", moment(details.latest_ack_timestamp, now)],
        details.failure_timestamp ? ["Failed", moment(details.failure_timestamp, now)] : null,
        details.external_path ? ["Path", code(details.external_path), true] : null,
      ]))];
  }

  operators(details) {
    const names = new Map(this.context.store.job.vertices.map((vertex) => [vertex.id, vertex.name]));
    const tasks = Object.entries(details.tasks || {});
    if (!tasks.length) return h("p", { class: "hint" }, "No operator has acknowledged it yet.");
    const now = this.context.store.now();
    const columns = [
      { name: "Operator", wide: true, cell: ([id]) => this.toggle(id, names.get(id) || id) },
      { name: "Status", cell: ([, task]) => pill(task.status) },
      { name: "Acknowledged", cell: ([, task]) => progress(task.num_acknowledged_subtasks, task.num_subtasks) },
      { name: "Last at", cell: ([, task]) => moment(task.latest_ack_timestamp, now) },
      { name: "Duration", number: true, cell: ([, task]) => duration(task.end_to_end_duration) },
      { name: "New", number: true, cell: ([, task]) => bytes(task.checkpointed_size) },
      { name: "Full", number: true, cell: ([, task]) => bytes(task.state_size) },
    ];
    return table(columns, tasks, {
      key: ([id]) => id, caption: "Operators of the checkpoint",
      below: ([id]) => this.open.has(id) && this.subtasks(id, names.get(id) || id),
    });
  }

  toggle(id, name) {
    const open = this.open.has(id);
    return h("button", {
      type: "button", class: "disclosure", "aria-expanded": String(open), "data-operator": id,
      onclick: () => {
        if (open) {
          this.open.get(id).dispose();
          this.open.delete(id);
        } else {
          this.open.set(id, new Resource(jobPath(this.context.job, ...this.path, "subtasks", id), this.context.repaint));
        }
        this.context.repaint();
      },
    }, name);
  }

  subtasks(id, name) {
    const now = this.context.store.now();
    return h("div", { class: "subtasks", "data-subtasks": id }, loaded(this.open.get(id), ({ summary, subtasks = [] }) => [
      summary ? summaryTable(summaryRows(summary), `Summary of ${name}`) : null,
      table(subtaskColumns(now), subtasks, { key: (row) => row.index, caption: `Subtasks of ${name}`, dense: true })]));
  }

  dispose() {
    clearTimeout(this.timer);
    this.details.dispose();
    this.open.forEach((subtasks) => subtasks.dispose());
  }
}

/** The longest parts of any subtask; they overlap. */
function parts({ sync_duration: sync, async_duration: async, alignment_duration: alignment }) {
  const known = [["alignment", alignment], ["sync", sync], ["async", async]].filter(([, value]) => value !== undefined);
  return known.map(([name, value]) => `${name} ${duration(value)}`).join(", ") || null;
}

function summaryRows(summary) {
  return [
    { name: "End to end", stats: summary.end_to_end_duration, format: duration },
    { name: "Sync", stats: summary.checkpoint_duration?.sync, format: duration },
    { name: "Async", stats: summary.checkpoint_duration?.async, format: duration },
    { name: "Alignment", stats: summary.alignment?.duration, format: duration },
    { name: "Start delay", stats: summary.start_delay, format: duration },
    { name: "New bytes", stats: summary.checkpointed_size, format: bytes },
    { name: "Full size", stats: summary.state_size, format: bytes },
  ].filter((row) => row.stats);
}

const subtaskColumns = (now) => [
  { name: "Subtask", number: true, cell: (row) => count(row.index) },
  { name: "Status", cell: (row) => [pill(String(row.status).toUpperCase()), row.aborted ? badge("aborted") : null, row.unaligned_checkpoint ? badge("unaligned") : null] },
  { name: "Acknowledged", cell: (row) => moment(row.ack_timestamp, now) },
  { name: "End to end", number: true, cell: (row) => duration(row.end_to_end_duration) },
  { name: "Sync", number: true, cell: (row) => duration(row.checkpoint?.sync) },
  { name: "Async", number: true, cell: (row) => duration(row.checkpoint?.async) },
  { name: "Alignment", number: true, cell: (row) => duration(row.alignment?.duration) },
  { name: "Start delay", number: true, cell: (row) => duration(row.start_delay) },
  { name: "New", number: true, cell: (row) => bytes(row.checkpointed_size) },
  { name: "Full", number: true, cell: (row) => bytes(row.state_size) },
];
