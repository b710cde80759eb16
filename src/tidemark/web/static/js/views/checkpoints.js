// Checkpoints: counts and the latest ones, the history in pages, a summary, the configuration, one in detail.
import { jobPath } from "../api.js";
import { ago, bytes, count, duration, words } from "../format.js";
import {
  badge, card, code, empty, facts, figure, figures, loaded, moment, pager, pill, progress, summaryTable, tabBar, table, waiting,
} from "../parts.js";
import { link } from "../router.js";
import { Resource } from "../resource.js";
import { h } from "../vdom.js";
import { CheckpointDetails } from "./checkpoint.js";

const TABS = [["Overview", "overview"], ["History", "history"], ["Summary", "summary"], ["Configuration", "configuration"]];
const PAGE = 50;

export class Checkpoints {
  constructor(context) {
    this.context = context;
    this.config = null;
    this.offset = 0;
    this.page = null;
    this.details = null;
  }

  render({ tab = "overview", checkpoint }) {
    this.showDetails(tab === "details" ? checkpoint : null);
    const { checkpoints } = this.context.store;
    const content = tab === "details" ? this.details.render()
      : tab === "configuration" ? this.configuration()
      : checkpoints === undefined ? waiting()
      : tab === "history" ? this.history(checkpoints)
      : tab === "summary" ? summary(checkpoints.summary)
      : this.overview(checkpoints);
    return [this.tabs(tab), content];
  }

  tabs(open) {
    const shown = open === "details" ? "history" : open;
    return tabBar("subtabs", "Views of the checkpoints", TABS.map(([name, path]) =>
      ({ name, href: link("jobs", this.context.job, "checkpoints", path), open: path === shown })));
  }

  detailsLink(id, label = `#${id}`) {
    return h("a", { href: link("jobs", this.context.job, "checkpoints", "details", id) }, label);
  }

  overview({ counts = {}, latest = {}, history = [] }) {
    const now = this.context.store.now();
    if (!counts.total && !latest.restored) return noneYet();
    return [
      figures(
        figure("Triggered", count(counts.total)), figure("In progress", count(counts.in_progress)),
        figure("Completed", count(counts.completed)),
        figure("Failed", count(counts.failed), null, { tone: counts.failed ? "bad" : "" }),
        figure("Restored", count(counts.restored), null, { tone: counts.restored ? "warn" : "" })),
      this.strip(history),
      h("div", { class: "cards" },
        this.latest("Latest completed", latest.completed, "The first one completes after the interval of the configuration."),
        this.latest("Latest failed", latest.failed, "No checkpoint has failed."),
        this.latest("Latest savepoint", latest.savepoint, "Take one in the view Savepoints."),
        card("Latest restore", latest.restored
          ? facts([
            ["From", this.detailsLink(latest.restored.id, `${latest.restored.is_savepoint ? "savepoint" : "checkpoint"} #${latest.restored.id}`)],
            ["When", [moment(latest.restored.restore_timestamp, now), ` (${ago(latest.restored.restore_timestamp, now)})`]],
            ["Path", code(latest.restored.external_path || "–")]])
          : h("p", { class: "hint" }, "The job started without a snapshot and has not been restored.")))];
  }

  latest(title, checkpoint, none) {
    if (!checkpoint) return card(title, h("p", { class: "hint" }, none));
    const now = this.context.store.now();
    return card(title, facts([
      ["Checkpoint", this.detailsLink(checkpoint.id)],
      ["Triggered", [moment(checkpoint.trigger_timestamp, now), ` (${ago(checkpoint.trigger_timestamp, now)})`]],
      ["Duration", duration(checkpoint.end_to_end_duration)],
      ["Size", sizes(checkpoint)],
      checkpoint.failure_message ? ["Failure", h("span", { class: "bad-text" }, checkpoint.failure_message)] : null,
      checkpoint.external_path ? ["Path", code(checkpoint.external_path)] : null,
    ]));
  }

  /** The newest checkpoints side by side: as high as they took long, coloured by how they ended. */
  strip(history) {
    if (history.length < 2) return null;
    // One that ran into its timeout must not press all others flat.
    const most = Math.max(1, ...history.filter((each) => each.status === "COMPLETED").map((each) => each.end_to_end_duration || 0));
    return card(`The last ${count(history.length)} by duration, up to ${duration(most)}`, h("div", { class: "strip", "aria-hidden": "true" },
      [...history].reverse().map((each) => h("a", {
        key: each.id, tabindex: "-1", class: each.status.toLowerCase(), href: link("jobs", this.context.job, "checkpoints", "details", each.id),
        title: `#${each.id} ${words(each.status)}, ${duration(each.end_to_end_duration)}, ${bytes(each.checkpointed_size)}`,
      }, h("span", { style: { height: `${Math.min(100, Math.max(4, 100 * (each.end_to_end_duration || 0) / most))}%` } })))));
  }

  history(newest) {
    const total = newest.counts?.total;
    if (!total) return noneYet();
    const rows = this.offset === 0 ? (newest.history || []).slice(0, PAGE) : this.page?.data?.history;
    const pages = (shown) => pager({ offset: this.offset, limit: PAGE, shown, total, onPage: (offset) => this.turn(offset) });
    if (!rows) return [pages(PAGE), loaded(this.page, () => null)];
    return [this.list(rows), pages(rows.length)];
  }

  turn(offset) {
    this.offset = offset;
    this.page?.dispose();
    const path = `${jobPath(this.context.job, "checkpoints")}?offset=${offset}&limit=${PAGE}`;
    this.page = offset === 0 ? null : new Resource(path, this.context.repaint);
    this.context.repaint();
  }

  list(rows) {
    const now = this.context.store.now();
    return table([
      { name: "Id", cell: (row) => this.detailsLink(row.id) },
      { name: "Status", cell: (row) => pill(row.status) },
      { name: "Triggered", cell: (row) => moment(row.trigger_timestamp, now) },
      { name: "Duration", number: true, cell: (row) => duration(row.end_to_end_duration) },
      { name: "New", number: true, cell: (row) => bytes(row.checkpointed_size) },
      { name: "Full", number: true, cell: (row) => bytes(row.state_size) },
      { name: "Acknowledged", cell: (row) => progress(row.num_acknowledged_subtasks, row.num_subtasks) },
      { name: "Note", wide: true, cell: note },
    ], rows, { key: (row) => row.id, caption: "Checkpoints, newest first", dense: true });
  }

  configuration() {
    this.config ||= this.context.resource(jobPath(this.context.job, "checkpoints", "config"));
    return card("Configuration", loaded(this.config, configuration));
  }

  showDetails(checkpoint) {
    if (this.details?.id === checkpoint) return;
    this.details?.dispose();
    this.details = checkpoint ? new CheckpointDetails(this.context, checkpoint) : null;
  }

  dispose() {
    this.page?.dispose();
    this.details?.dispose();
  }
}

function note(row) {
  if (row.failure_message) return h("span", { class: "bad-text clip", title: row.failure_message }, row.failure_message);
  if (row.is_savepoint) return badge("savepoint");
  return row.discarded ? h("span", { class: "hint" }, "subsumed") : "";
}

const noneYet = () =>
  empty("No checkpoint yet.", "Switch them on with ", code("execution.checkpointing.interval"), " or ", code("env.enable_checkpointing(10_000)"), ".");

function sizes({ checkpointed_size, state_size }) {
  return checkpointed_size === state_size || state_size === undefined
    ? bytes(checkpointed_size) : `${bytes(checkpointed_size)} new, ${bytes(state_size)} in all`;
}

function summary(stats) {
  if (!stats?.end_to_end_duration) return noneYet();
  return card("Completed checkpoints", summaryTable([
    { name: "Duration", stats: stats.end_to_end_duration, format: duration },
    { name: "New bytes", stats: stats.checkpointed_size, format: bytes },
    { name: "Full size", stats: stats.state_size, format: bytes },
    stats.sync_duration && { name: "Sync", stats: stats.sync_duration, format: duration },
    stats.async_duration && { name: "Async", stats: stats.async_duration, format: duration },
    stats.alignment_duration && { name: "Alignment", stats: stats.alignment_duration, format: duration },
  ].filter(Boolean), "Summary of the completed checkpoints"));
}

function configuration(config) {
  const limit = (value) => (value === undefined || value === null || value < 0 || value > 2 ** 53 ? null : duration(value));
  const yes = (value) => (value === undefined || value === null ? null : value ? "yes" : "no");
  const kept = config.externalization;
  return facts([
    ["Mode", words(config.mode)],
    ["Interval", limit(config.interval) ?? "only when asked"],
    ["Timeout", limit(config.timeout)],
    ["Least pause between", limit(config.min_pause)],
    ["At most at once", count(config.max_concurrent)],
    ["Failures tolerated", count(config.tolerable_failed_checkpoints)],
    ["Unaligned", yes(config.unaligned_checkpoints)],
    ["Aligned for at most", limit(config.aligned_checkpoint_timeout)],
    ["After the job ends", kept?.enabled ? (kept.delete_on_cancellation ? "kept, deleted when canceled" : "kept") : "deleted"],
    ["State backend", config.state_backend],
    ["Storage", config.checkpoint_storage && code(config.checkpoint_storage)],
    ["Kept at a time", config.num_retained && count(config.num_retained)],
    ["After tasks finish", yes(config.checkpoints_after_tasks_finish)],
  ].filter(([, value]) => value !== null && value !== undefined));
}
