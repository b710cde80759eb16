// Starts the page: follows the address and the event stream, and paints the view that belongs to them.
import { get, jobPath } from "./api.js";
import { Frame } from "./frame.js";
import { Live } from "./live.js";
import { recallPlace } from "./place.js";
import { Resource } from "./resource.js";
import { match } from "./router.js";
import { h, render } from "./vdom.js";
import { Checkpoints } from "./views/checkpoints.js";
import { Exceptions } from "./views/exceptions.js";
import { Jobs } from "./views/jobs.js";
import { NotFound } from "./views/notfound.js";
import { Overview } from "./views/overview.js";
import { Savepoints } from "./views/savepoints.js";
import { Settings } from "./views/settings.js";
import { Slots } from "./views/slots.js";
import { States } from "./views/states.js";

const ROUTES = [
  ["", Jobs],
  ["jobs/:job", Overview],
  ["jobs/:job/vertices/:vertex", Overview],
  ["jobs/:job/checkpoints", Checkpoints],
  ["jobs/:job/checkpoints/:tab", Checkpoints],
  ["jobs/:job/checkpoints/:tab/:checkpoint", Checkpoints],
  ["jobs/:job/savepoints", Savepoints],
  ["jobs/:job/state", States],
  ["jobs/:job/exceptions", Exceptions],
  ["jobs/:job/slots", Slots],
  ["jobs/:job/slots/:slot", Slots],
  ["jobs/:job/configuration", Settings],
];
const NEWEST = 100;
const TICK_MS = 1000;

/** What is known of the jobs; views read it, only this module writes it. */
const store = {
  overview: undefined, job: undefined, checkpoints: undefined, problem: null, connection: "connecting",
  config: {}, notice: null, skew: 0,
  /** The server's clock: ages must not depend on how well the reader's is set. */
  now: () => Date.now() + store.skew,
};

let jobId; // null is the list of jobs; at first it is neither
let current = null; // the view that is shown, with what it holds
let painting = false;
const live = new Live(receive, (state) => { store.connection = state; repaint(); });
const frame = new Frame(store, { repaint, notify });

function receive(name, data) {
  if (name === "job") {
    if (data.jid !== jobId) return;
    if (data.now) store.skew = data.now - Date.now();
    store.problem = null;
    data.vertices = data.vertices.map((vertex) => ({ ...vertex.metrics, ...vertex }));
  }
  store[name] = data;
  current?.view.changed?.(name);
  repaint();
}

function notify(text, tone = "good") {
  store.notice = text ? { text, tone } : null;
  repaint();
}

function repaint() {
  if (painting) return;
  painting = true;
  requestAnimationFrame(() => {
    painting = false;
    if (!current) return;
    document.title = frame.title(current);
    render(document.getElementById("app"), frame.render(current, () => h("div", { key: current.key }, current.view.render(current.params))));
  });
}

/** What a view may use. `resource` lives as long as the view. */
function contextFor(job, resources) {
  return {
    job, store, repaint, notify,
    resource: (path, options) => {
      const resource = new Resource(path, repaint, options);
      resources.push(resource);
      return resource;
    },
  };
}

function navigate() {
  if (location.hash === "#main") return; // the skip link
  const found = match(ROUTES, location.hash) || { view: NotFound, params: {}, query: new URLSearchParams() };
  follow(found.params.job ?? null);
  const key = `${found.view.name} ${found.params.job ?? ""}`;
  if (current?.key === key) {
    Object.assign(current, found, { view: current.view });
  } else {
    const resources = [];
    current?.resources.forEach((resource) => resource.dispose());
    current?.view.dispose?.();
    current = { ...found, key, resources, kind: found.view };
    current.view = new found.view(contextFor(found.params.job, resources), found.params);
    window.scrollTo(0, 0);
  }
  store.notice = null;
  repaint();
}

/** Makes the store follow `job`: first by asking, so that the page is there at once, then by events. */
function follow(job) {
  if (job !== jobId) {
    jobId = job;
    Object.assign(store, { job: undefined, checkpoints: undefined, problem: null });
    const ask = (name, path) => get(path).then((data) => {
      if (jobId === job && store[name] === undefined) receive(name, data);
    });
    const failed = (error) => {
      if (jobId === job) store.problem = error;
      repaint();
    };
    if (job === null) ask("overview", "jobs/overview").catch(failed);
    else {
      ask("job", jobPath(job)).catch(failed);
      ask("checkpoints", `${jobPath(job, "checkpoints")}?limit=${NEWEST}`).catch(() => {}); // told with the job's own
    }
  }
  live.watch(job);
}

const place = recallPlace();
if (place) history.replaceState(null, "", place);
addEventListener("hashchange", navigate);
setInterval(() => document.hidden || repaint(), TICK_MS);
get("config").then((config) => { store.config = config; repaint(); }, () => {});
navigate();
