// What surrounds every view: the bar on top, and for a job its name, state, actions and tabs.
import { patch, post, jobPath } from "./api.js";
import { ask } from "./dialog.js";
import { elapsed } from "./format.js";
import { ended, moment, pill, problem, tabBar, waiting } from "./parts.js";
import { link } from "./router.js";
import { savepointPath } from "./savepoint.js";
import { h } from "./vdom.js";

const TABS = [
  ["Overview", ""], ["Checkpoints", "checkpoints"], ["Savepoints", "savepoints"], ["State", "state"],
  ["Exceptions", "exceptions"], ["Slots", "slots"], ["Configuration", "configuration"],
];
const CONNECTION = {
  connecting: "connecting…", live: "live", paused: "paused", lost: "connection lost, trying again…",
};
const MODES = { continuous: "runs continuously", epochs: "runs in epochs" };
const THEMES = { auto: "Auto", light: "Light", dark: "Dark" };

export class Frame {
  constructor(store, { repaint, notify }) {
    this.store = store;
    this.repaint = repaint;
    this.notify = notify;
  }

  title(current) {
    const job = this.store.job?.name || current.params.job;
    const tab = TABS.find(([, path]) => path === this.tabOf(current))?.[0];
    return [tab, job, "tidemark"].filter(Boolean).join(" – ");
  }

  tabOf(current) {
    return current.params.job === undefined ? undefined : location.hash.split(/[/?]/)[3]?.replace("vertices", "") ?? "";
  }

  render(current, content) {
    const job = current.params.job;
    return [this.bar(job), h("main", { id: "main", tabindex: "-1" },
      this.notice(), job === undefined ? content() : this.jobFrame(job, current, content)), this.foot()];
  }

  bar(job) {
    const { connection } = this.store;
    return h("header", { class: "bar" },
      h("a", { class: "brand", href: link() }, h("img", { src: "static/icon.svg", width: 24, height: 24, alt: "" }), "tidemark"),
      job === undefined ? null : h("a", { class: "crumb", href: link() }, "All jobs"),
      h("span", { class: "space" }),
      h("span", { class: `connection ${connection}`, role: "status" }, CONNECTION[connection]),
      h("button", {
        type: "button", class: "button small theme", title: "Colours: auto (as the system), light or dark", "aria-label": `Colours: ${THEMES[window.tidemarkTheme.choice]}`,
        onclick: () => { window.tidemarkTheme.next(); this.repaint(); },
      }, h("span", { class: "theme-sign", "aria-hidden": "true" }, "◐"), h("span", { class: "theme-name" }, THEMES[window.tidemarkTheme.choice])));
  }

  notice() {
    const { notice } = this.store;
    return h("div", { class: "notices", "aria-live": "polite" }, notice
      ? h("div", { class: `notice ${notice.tone}` }, h("p", {}, notice.text),
        h("button", { type: "button", class: "button small", onclick: () => this.notify(null) }, "Close"))
      : null);
  }

  jobFrame(id, current, content) {
    const { job, problem: error } = this.store;
    if (error && !job) {
      return [h("h1", {}, id), problem(error), h("p", {}, h("a", { href: link() }, "See all jobs"))];
    }
    return [this.gone(), job ? this.head(job) : waiting(), this.tabs(id, current), job ? content() : null];
  }

  /** The server lives in the job's process, so it goes when the job ends. */
  gone() {
    return this.store.connection === "lost"
      ? h("div", { class: "notice bad", key: "gone" }, h("p", {}, "The server does not answer any more; below is what it said last. Either the job has ended, and ",
        h("code", {}, "tidemark web"), " shows how, or it cannot be reached from here."))
      : null;
  }

  head(job) {
    const over = ended(job.state);
    const spent = over ? job.duration : this.store.now() - job["start-time"];
    return h("div", { class: "job-head" },
      h("div", { class: "job-title" },
        h("h1", {}, job.name), pill(job.state)),
      h("p", { class: "job-facts" },
        h("span", {}, "started ", moment(job["start-time"], this.store.now())), h("span", {}, over ? "ran " : "running ", elapsed(spent)),
        job["execution-mode"] ? h("span", { "data-mode": job["execution-mode"], title: `Because ${job["execution-mode-reason"]}.` }, MODES[job["execution-mode"]]) : null,
        job["started-from"] ? h("span", {}, "from ", h("code", {}, job["started-from"])) : null,
        h("code", { title: "job id" }, job.jid)),
      over ? null : h("div", { class: "actions" },
        h("a", { class: "button", href: link("jobs", job.jid, "savepoints") }, "Savepoint…"),
        h("button", { type: "button", class: "button", onclick: () => this.stop(job) }, "Stop…"),
        h("button", { type: "button", class: "button danger", onclick: () => this.cancel(job) }, "Cancel…")));
  }

  tabs(id, current) {
    const open = this.tabOf(current);
    const path = (tab) => link(...["jobs", id, tab].filter(Boolean));
    return tabBar("tabs", "Views of the job", TABS.map(([name, tab]) => ({ name, href: path(tab), open: tab === open })));
  }

  async cancel(job) {
    const sure = await ask({
      title: `Cancel ${job.name}?`, action: "Cancel the job", danger: true,
      text: "It ends at once, without a savepoint. What it did since the last checkpoint is done again if you start it from there.",
    });
    if (sure) await this.act(() => patch(`${jobPath(job.jid)}?mode=cancel`).then(() => "The job is being cancelled."));
  }

  async stop(job) {
    const answer = await ask({
      title: `Stop ${job.name}?`, action: "Stop with a savepoint",
      text: "It takes a savepoint and ends. You can start it again from there, changed or not.",
      fields: [
        { name: "directory", label: "Savepoint directory (empty: as configured)", placeholder: "state.savepoints.dir" },
        { name: "drain", label: "Drain: let all windows and timers fire first; the job cannot go on from there", type: "checkbox", value: "yes" },
      ],
    });
    if (!answer) return;
    const body = { drain: answer.drain === "yes" };
    if (answer.directory) body.targetDirectory = answer.directory;
    await this.act(async () => {
      const { "request-id": request } = await post(jobPath(job.jid, "stop"), body);
      this.notify("The job takes a savepoint and stops.");
      return `The job has stopped. Its savepoint: ${await savepointPath(job.jid, request)}`;
    });
  }

  /** Does something and shows what it answers with, or the error. */
  async act(action) {
    try {
      this.notify(await action());
    } catch (error) {
      this.notify(error.message, "bad");
    }
  }

  foot() {
    const version = this.store.config["flink-version"]; // Flink's name for the version of the server
    return h("footer", { class: "foot" }, version ? `tidemark ${version}` : "tidemark", h("a", { href: "v1/jobs/overview" }, "REST"));
  }
}
