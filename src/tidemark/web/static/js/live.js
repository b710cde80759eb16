// The stream of server-sent events: open while the page is looked at, closed while the tab is hidden.
import { eventsAddress, get } from "./api.js";

const EVENTS = ["overview", "job", "checkpoints"];
const RETRY_MS = [1000, 2000, 5000, 10_000];

/** One stream at a time. `onEvent(name, data)` gets what arrives, `onState` one of connecting, live, paused, lost. */
export class Live {
  constructor(onEvent, onState) {
    this.onEvent = onEvent;
    this.onState = onState;
    this.job = undefined;
    this.source = null;
    this.failures = 0;
    document.addEventListener("visibilitychange", () => this.follow());
  }

  /** Follows `job` (or, with null, the overview of all jobs only). */
  watch(job) {
    if (job === this.job) return;
    this.job = job;
    this.failures = 0;
    this.close();
    this.follow();
  }

  follow() {
    if (document.hidden) {
      this.close();
      this.onState("paused");
    } else if (!this.source) {
      this.open();
    }
  }

  open() {
    clearTimeout(this.timer);
    this.onState(this.failures ? "lost" : "connecting");
    const source = new EventSource(eventsAddress(this.job));
    this.source = source;
    source.addEventListener("open", () => {
      this.failures = 0;
      this.onState("live");
    });
    for (const name of EVENTS) {
      source.addEventListener(name, (event) => this.onEvent(name, JSON.parse(event.data)));
    }
    source.addEventListener("error", () => this.source === source && this.retry());
  }

  // We reconnect ourselves: browsers give up for good after an answer that is no stream.
  retry() {
    this.close();
    this.onState("lost");
    this.timer = setTimeout(() => {
      if (document.hidden || this.source) return;
      get("config").catch(() => {}); // an expired login shows itself here and leads to the login page
      this.open();
    }, RETRY_MS[Math.min(this.failures++, RETRY_MS.length - 1)]);
  }

  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }
}
