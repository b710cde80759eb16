// Slots: the processes that hold state and run functions; where they are, what they use, the end of their log.
import { text } from "../api.js";
import { ago, bytes, count, duration, percent } from "../format.js";
import { empty, filterBox, figure, figures, loaded, pill, table } from "../parts.js";
import { link } from "../router.js";
import { Resource } from "../resource.js";
import { h } from "../vdom.js";

const EVERY_MS = 3000;
const TAIL_LINES = 500;

export class Slots {
  constructor(context) {
    this.context = context;
    this.slots = context.resource(`taskmanagers?job=${encodeURIComponent(context.job)}`, { every: EVERY_MS });
    this.filter = "";
    this.log = null;
  }

  render({ slot }) {
    this.follow(slot);
    return loaded(this.slots, ({ taskmanagers }) => {
      const slots = taskmanagers.filter((each) => !each.job || each.job === this.context.job);
      const chosen = slots.find((each) => each.id === slot);
      if (!slots.length && !slot) return empty("No slot is running.", "Slots live as long as the job; the view Exceptions says why it ended.");
      return [
        slots.length ? this.strip(slots) : null,
        slot ? this.one(slot, chosen) : null,
        slots.length > 8 ? filterBox("Filter by host, id or key group", this.filter, (value) => { this.filter = value; this.context.repaint(); }) : null,
        slots.length ? this.table(slots, slot) : null];
    });
  }

  strip(slots) {
    const sum = (field) => {
      const values = slots.map((slot) => slot[field]).filter((value) => value !== null && value !== undefined);
      return values.length ? values.reduce((a, b) => a + b, 0) : null;
    };
    const hosts = new Set(slots.map((slot) => slot.host));
    const cpu = sum("cpu");
    return figures(
      figure("Slots", count(slots.length)), figure("Hosts", count(hosts.size)),
      figure("Memory", bytes(sum("memory-bytes"))),
      figure("CPU", cpu === null ? "–" : `${(cpu).toFixed(1)} cores`));
  }

  table(slots, chosen) {
    const now = this.context.store.now();
    const wanted = this.filter.toLowerCase();
    const shown = slots.filter((slot) => `${slot.host} ${slot.id} ${slot.pid} ${groups(slot)}`.toLowerCase().includes(wanted));
    if (!shown.length) return empty("No slot fits the filter.");
    return table([
      { name: "Slot", cell: (slot) => h("a", { href: link("jobs", this.context.job, "slots", slot.id), "aria-current": slot.id === chosen ? "true" : null }, slot.id) },
      { name: "Host", cell: (slot) => slot.host ?? "–" },
      { name: "Pid", number: true, cell: (slot) => slot.pid ?? "–" },
      { name: "Memory", number: true, cell: (slot) => bytes(slot["memory-bytes"]) },
      { name: "CPU", number: true, cell: (slot) => percent(slot.cpu) },
      { name: "Key groups", cell: groups },
      { name: "Heartbeat", number: true, cell: (slot) => heartbeat(slot, now) },
    ], shown, { key: (slot) => slot.id, caption: "Slots", rowClass: (slot) => (slot.id === chosen ? "chosen" : null) });
  }

  follow(slot) {
    if (this.log?.slot === slot || (!slot && !this.log)) return;
    this.log?.dispose();
    this.log = slot ? new Resource(`taskmanagers/${encodeURIComponent(slot)}/log`, this.context.repaint, { every: EVERY_MS, load: text }) : null;
    if (this.log) this.log.slot = slot;
  }

  one(id, slot) {
    return h("section", { class: "card", key: `slot ${id}`, "data-slot": id },
      h("div", { class: "card-head" }, h("h2", {}, `Slot ${id}`), slot?.status ? pill(slot.status) : null,
        h("a", { class: "button small", href: link("jobs", this.context.job, "slots") }, "Close")),
      slot ? null : h("p", { class: "hint" }, "This slot no longer runs; what its log says is what is left of it."),
      loaded(this.log, (log) => log.trim()
        ? h("pre", { class: "trace log", tabindex: "0", "aria-label": "Log", mount: toEnd, update: stayAtEnd }, tail(log))
        : h("p", { class: "hint" }, "The log is empty.")));
  }

  dispose() {
    this.log?.dispose();
  }
}

function groups(slot) {
  const range = slot["key-groups"];
  if (!range) return "–";
  return Array.isArray(range) ? `${range[0]}–${range[1]}` : String(range);
}

function heartbeat(slot, now) {
  const at = slot.timeSinceLastHeartbeat;
  if (at === undefined || at === null) return "–";
  // Flink's field is a time stamp in spite of its name; small values are what the name says.
  return at > 1e11 ? ago(at, now) : `${duration(at)} ago`;
}

function tail(log) {
  const lines = log.trimEnd().split("\n");
  return lines.length > TAIL_LINES ? `… ${count(lines.length - TAIL_LINES)} lines before\n${lines.slice(-TAIL_LINES).join("\n")}` : lines.join("\n");
}

function toEnd(element) {
  element.scrollTop = element.scrollHeight;
  element.onscroll = () => (element.follows = element.scrollTop + element.clientHeight >= element.scrollHeight - 8);
  element.follows = true;
}

function stayAtEnd(element) {
  if (element.follows) element.scrollTop = element.scrollHeight;
}
