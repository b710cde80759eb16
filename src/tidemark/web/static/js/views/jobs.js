// All jobs: those that run first, then those that ended.
import { count, elapsed } from "../format.js";
import { code, empty, ended, figure, figures, filterBox, moment, pill, problem, table, waiting } from "../parts.js";
import { link } from "../router.js";
import { h } from "../vdom.js";

export class Jobs {
  constructor(context) {
    this.context = context;
    this.filter = "";
  }

  render() {
    const { store } = this.context;
    if (store.overview === undefined) return store.problem ? problem(store.problem) : waiting();
    const { jobs } = store.overview;
    if (!jobs.length) {
      return [h("h1", {}, "Jobs"), empty("No job has run here yet.", "Start one with ", code("tidemark run your_job.py"), "; it appears by itself.")];
    }
    const running = jobs.filter((job) => !ended(job.state));
    const over = jobs.filter((job) => ended(job.state)).sort((a, b) => b["end-time"] - a["end-time"]);
    return [h("h1", {}, "Jobs"), this.strip(jobs, running),
      jobs.length > 8 ? filterBox("Filter by name, id or state", this.filter, (value) => { this.filter = value; this.context.repaint(); }) : null,
      h("section", {}, h("h2", {}, "Running"), running.length
        ? this.list(running, "Running jobs")
        : empty("No job is running.", "Start one with ", code("tidemark run your_job.py"), ".")),
      over.length ? h("section", {}, h("h2", {}, "Ended"), this.list(over, "Ended jobs")) : null];
  }

  strip(jobs, running) {
    const number = (state) => jobs.filter((job) => job.state === state).length;
    return figures(
      figure("Running", count(running.length)), figure("Finished", count(number("FINISHED"))),
      figure("Canceled", count(number("CANCELED"))),
      figure("Failed", count(number("FAILED")), null, { tone: number("FAILED") ? "bad" : "" }));
  }

  list(jobs, caption) {
    const now = this.context.store.now();
    const wanted = this.filter.toLowerCase();
    const shown = jobs.filter((job) => `${job.name} ${job.jid} ${job.state}`.toLowerCase().includes(wanted));
    if (!shown.length) return empty("No job fits the filter.");
    return table([
      { name: "Job", wide: true, cell: (job) => h("a", { class: "row-link", href: link("jobs", job.jid) }, job.name) },
      { name: "State", cell: (job) => pill(job.state) },
      { name: "Started", cell: (job) => moment(job["start-time"], now) },
      { name: "Duration", number: true, cell: (job) => elapsed(ended(job.state) ? job.duration : now - job["start-time"]) },
      { name: "Tasks", number: true, cell: (job) => tasks(job) },
      { name: "Id", cell: (job) => h("code", { class: "id" }, job.jid) },
    ], shown, { key: (job) => job.jid, caption });
  }
}

function tasks({ state, tasks: all = {} }) {
  return ended(state) ? count(all.total) : `${count(all.running)} of ${count(all.total)} running`;
}
