// Exceptions: why attempts ended, newest first, each with its cause in one line and the traceback folded.
import { jobPath } from "../api.js";
import { ago } from "../format.js";
import { badge, copyButton, empty, loaded, moment } from "../parts.js";
import { link } from "../router.js";
import { h } from "../vdom.js";

const EVERY_MS = 5000;

export class Exceptions {
  constructor(context) {
    this.context = context;
    this.exceptions = context.resource(jobPath(context.job, "exceptions"), { every: EVERY_MS });
  }

  /** The job has changed, perhaps because it failed. */
  changed(name) {
    const state = this.context.store.job?.state;
    if (name !== "job" || state === this.state) return;
    this.state = state;
    this.exceptions.reload();
  }

  render() {
    return loaded(this.exceptions, (data) => {
      const entries = entriesOf(data);
      if (!entries.length) return empty("Nothing has failed.", "When an attempt ends with an error, its cause and its traceback stand here.");
      return [
        h("ol", { class: "failures" }, entries.map((entry, i) => this.entry(entry, i, entries.length))),
        data.exceptionHistory?.truncated || data.truncated ? h("p", { class: "hint" }, "Older failures are in the job's log.") : null];
    });
  }

  entry(entry, i, all) {
    const now = this.context.store.now();
    const slot = entry.taskManagerId;
    const where = entry.endpoint || entry.location || slot;
    return h("li", { key: `${entry.timestamp} ${all - i}`, class: "card failure" },
      h("div", { class: "failure-head" },
        h("strong", { class: "failure-cause bad-text" }, causeOf(entry)),
        entry.attempt === undefined ? null : badge(`attempt ${entry.attempt}`),
        h("span", { class: "hint" }, moment(entry.timestamp, now), ` (${ago(entry.timestamp, now)})`)),
      h("p", { class: "hint" },
        entry.taskName ? h("span", {}, "in ", h("strong", {}, entry.taskName)) : null,
        where ? h("span", {}, " on ", slot ? h("a", { href: link("jobs", this.context.job, "slots", slot) }, where) : where) : null),
      h("details", { open: i === 0 && all === 1 },
        h("summary", {}, "Traceback"),
        h("div", { class: "trace-box" }, copyButton(entry.stacktrace || ""), h("pre", { class: "trace", tabindex: "0" }, entry.stacktrace || "no traceback"))),
      (entry.concurrentExceptions || []).map((other, j) => h("details", { key: j },
        h("summary", {}, `At the same time: ${other.exceptionName || ""} ${other.taskName ? `in ${other.taskName}` : ""}`),
        h("pre", { class: "trace", tabindex: "0" }, other.stacktrace || "no traceback"))));
  }
}

function entriesOf(data) {
  const entries = data.exceptionHistory?.entries || [];
  if (entries.length || !data["root-exception"]) return entries;
  return [{ exceptionName: "", stacktrace: data["root-exception"], timestamp: data.timestamp }];
}

/** The line that says what went wrong: the last one of a Python traceback that is not indented, if it names the error. */
function causeOf({ stacktrace, exceptionName, message }) {
  const last = stacktrace?.trimEnd().split("\n").findLast((line) => line && !/^\s/.test(line));
  return message && !last?.includes(exceptionName) ? message : last || exceptionName || "Failure";
}
