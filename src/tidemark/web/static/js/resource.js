// What a view fetches beside the event stream: once, again when asked, or every few seconds while the tab is seen.
import { get } from "./api.js";

export class Resource {
  /**
   * @param {string} path below /v1
   * @param {() => void} changed called after each answer
   * @param {{every?: number, load?: (path: string) => Promise<any>}} options
   */
  constructor(path, changed, { every, load = get } = {}) {
    this.path = path;
    this.changed = changed;
    this.data = undefined;
    this.error = null;
    this.read = load;
    this.every = every;
    this.disposed = false;
    this.reload();
    if (every) this.timer = setInterval(() => document.hidden || this.reload(), every);
  }

  get loading() {
    return this.data === undefined && !this.error;
  }

  /** Fetches anew; calls while one is under way share its answer. */
  reload() {
    this.pending ||= this.fetch().finally(() => (this.pending = null));
    return this.pending;
  }

  async fetch() {
    try {
      const data = await this.read(this.path);
      this.error = null;
      this.data = data;
    } catch (error) {
      this.error = error;
    }
    if (!this.disposed) this.changed();
  }

  dispose() {
    this.disposed = true;
    clearInterval(this.timer);
  }
}
