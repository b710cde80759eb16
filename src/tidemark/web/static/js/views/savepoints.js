// Savepoints: take one, watch it, and find those that were taken.
import { jobPath, post } from "../api.js";
import { ago } from "../format.js";
import { card, code, copyButton, empty, ended, facts, loaded, moment, pill, table } from "../parts.js";
import { link } from "../router.js";
import { causeText, savepointPath } from "../savepoint.js";
import { h } from "../vdom.js";

const EVERY_MS = 5000;

export class Savepoints {
  constructor(context) {
    this.context = context;
    this.list = context.resource(jobPath(context.job, "savepoints"), { every: EVERY_MS });
    this.directory = "";
    this.taking = null; // the savepoint asked for here: {since, status, location, failure}
  }

  render() {
    return [
      ended(this.context.store.job.state)
        ? empty("The job has ended; it takes no more savepoints.", "Start it again from one below with ", code("tidemark run --from-savepoint PATH your_job.py"), ".")
        : this.form(),
      this.taking ? this.progress() : null,
      card("Savepoints of this job", loaded(this.list, ({ savepoints }) => this.table(savepoints))),
    ];
  }

  form() {
    return card("Take a savepoint",
      h("form", { class: "inline", onsubmit: (event) => { event.preventDefault(); this.take(); } },
        h("label", { class: "field" }, h("span", {}, "Directory"),
          h("input", { type: "text", name: "directory", value: this.directory, placeholder: "as configured", oninput: (e) => (this.directory = e.target.value) })),
        h("button", { type: "submit", class: "button primary", disabled: this.taking?.status === "IN_PROGRESS" }, "Take a savepoint")),
      h("p", { class: "hint" }, "The job goes on meanwhile. A savepoint is yours: nothing deletes it but you."));
  }

  async take() {
    const taking = { since: this.context.store.now(), status: "IN_PROGRESS" };
    this.taking = taking;
    this.context.repaint();
    const wanted = () => {
      this.context.repaint();
      return this.taking === taking;
    };
    try {
      const asked = { "target-directory": this.directory || null, "cancel-job": false };
      const { "request-id": request } = await post(jobPath(this.context.job, "savepoints"), asked);
      const location = await savepointPath(this.context.job, request, wanted);
      Object.assign(taking, { status: "COMPLETED", location });
    } catch (error) {
      Object.assign(taking, { status: "FAILED", failure: error.message });
    }
    this.list.reload();
    this.context.repaint();
  }

  progress() {
    const { status, since, location, failure } = this.taking;
    return h("section", { class: "card", "aria-live": "polite", "data-savepoint": status },
      h("div", { class: "card-head" }, h("h2", {}, "Your savepoint"), pill(status)),
      status === "IN_PROGRESS" ? h("p", {}, h("span", { class: "spinner" }), ` asked for ${ago(since, this.context.store.now())}`) : null,
      location ? facts([
        ["Path", h("span", { class: "copyable" }, h("code", { "data-location": "" }, location), copyButton(location)), true],
        ["Start from it", code(`tidemark run --from-savepoint ${location} your_job.py`), true]]) : null,
      failure ? h("pre", { class: "trace" }, failure) : null);
  }

  table(savepoints) {
    if (!savepoints.length) return empty("No savepoint yet.", "Take one before you change the program, the parallelism or the version.");
    const now = this.context.store.now();
    return table([
      { name: "Id", cell: (row) => /^\d+$/.test(row.id) ? h("a", { href: link("jobs", this.context.job, "checkpoints", "details", row.id) }, `#${row.id}`) : code(row.id) },
      { name: "Status", cell: (row) => pill(row.status) },
      { name: "Triggered", cell: (row) => moment(row["trigger-timestamp"], now) },
      { name: "Path", wide: true, cell: (row) => row.location
        ? h("span", { class: "copyable" }, code(row.location), copyButton(row.location))
        : h("span", { class: row["failure-cause"] ? "bad-text" : "" }, row["failure-cause"] ? causeText(row["failure-cause"]) : "–") },
    ], savepoints, { key: (row) => row.id, caption: "Savepoints" });
  }

  dispose() {
    this.taking = null; // ends the polling
  }
}
