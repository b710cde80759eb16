// Slots: the processes that hold state and run functions; where they are, what they use, the end of their log.
import { get, text } from "../api.js";
import { ago, bytes, count, NOTHING, percent } from "../format.js";
import { empty, filterBox, figure, figures, loaded, table } from "../parts.js";
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
    this.loads = new Map(); // slot → {seconds, at, cores}
  }

  render({ slot }) {
    this.follow(slot);
    return loaded(this.slots, ({ taskmanagers }) => {
      const slots = taskmanagers.filter((each) => !each.job || each.job === this.context.job);
      slots.forEach((each) => this.measure(each));
      const chosen = slots.find((each) => each.id === slot);
      if (!slots.length && !slot) return empty("No slot is running.", "Slots live as long as the job; the view Exceptions says why it ended.");
      return [
        slots.length ? this.strip(slots) : null,
        slot ? this.one(slot, chosen) : null,
        slots.length > 8 ? filterBox("Filter by host, id or key group", this.filter, (value) => { this.filter = value; this.context.repaint(); }) : null,
        slots.length ? this.table(slots, slot) : null,
        h("p", { class: "hint" }, "What the job as a whole does is in the ", h("a", { href: driverLog(this.context.job) }, "log of the driver"), ".")];
    });
  }

  strip(slots) {
    // In the local executor all slots are one process, whose memory and time count once.
    const processes = [...new Map(slots.map((slot) => [`${slot.host} ${slot.pid}`, slot])).values()];
    const sum = (values) => (values.some((value) => value !== null) ? values.reduce((a, b) => a + (b ?? 0), 0) : null);
    const hosts = new Set(slots.map((slot) => slot.host));
    const cores = sum(processes.map((slot) => this.loads.get(slot.id).cores));
    return figures(
      figure("Slots", count(slots.length)), figure("Hosts", count(hosts.size)),
      figure("Memory", bytes(sum(processes.map((slot) => slot.memory ?? null)))),
      figure("CPU", cores === null ? NOTHING : `${cores.toFixed(1)} cores`));
  }

  /** A slot tells the seconds of CPU it has used; how many cores that is follows from two looks. */
  measure({ id, "cpu-seconds": seconds, timeSinceLastHeartbeat: at }) {
    const before = this.loads.get(id);
    if (before && before.at === at) return;
    const known = before && seconds >= before.seconds && at > before.at;
    this.loads.set(id, { seconds, at, cores: known ? (seconds - before.seconds) * 1000 / (at - before.at) : null });
  }

  table(slots, chosen) {
    const now = this.context.store.now();
    const wanted = this.filter.toLowerCase();
    const shown = slots.filter((slot) => `${slot.host} ${slot.id} ${slot.pid} ${groups(slot)}`.toLowerCase().includes(wanted));
    if (!shown.length) return empty("No slot fits the filter.");
    return table([
      { name: "Slot", cell: (slot) => h("a", { href: link("jobs", this.context.job, "slots", slot.id), "aria-current": slot.id === chosen ? "true" : null }, nameOf(slot.id)) },
      { name: "Host", cell: (slot) => slot.host ?? "–" },
      { name: "Pid", number: true, cell: (slot) => slot.pid ?? "–" },
      { name: "Memory", number: true, cell: (slot) => bytes(slot.memory) },
      { name: "CPU", number: true, cell: (slot) => percent(this.loads.get(slot.id).cores) },
      { name: "Key groups", wide: true, cell: groups },
      // A time stamp in spite of its name, as in Flink.
      { name: "Heartbeat", number: true, cell: (slot) => ago(slot.timeSinceLastHeartbeat, now) },
    ], shown, { key: (slot) => slot.id, caption: "Slots", dense: true, rowClass: (slot) => (slot.id === chosen ? "chosen" : null) });
  }

  follow(slot) {
    if (this.log?.slot === slot || (!slot && !this.log)) return;
    this.log?.dispose();
    this.log = slot ? new Resource(`taskmanagers/${encodeURIComponent(slot)}/logs`, this.context.repaint, { every: EVERY_MS, load: newestLog }) : null;
    if (this.log) this.log.slot = slot;
  }

  one(id, slot) {
    return h("section", { class: "card", key: `slot ${id}`, "data-slot": id },
      h("div", { class: "card-head" }, h("h2", {}, nameOf(id)), h("span", { class: "hint" }, slot ? `${slot.host}, pid ${slot.pid}` : ""),
        h("a", { class: "button small", href: link("jobs", this.context.job, "slots") }, "Close")),
      slot ? null : h("p", { class: "hint" }, "This slot no longer runs; what its log says is what is left of it."),
      loaded(this.log, (log) => log.trim()
        ? h("pre", { class: "trace log", tabindex: "0", "aria-label": "Log", mount: toEnd, update: stayAtEnd }, tail(log))
        : h("p", { class: "hint" }, "There is no log of this slot; in the local executor slots write to the log of the driver.")));
  }

  dispose() {
    this.log?.dispose();
  }
}

/** The log of a slot; older parts of a rotated one have longer names. */
async function newestLog(path) {
  const { logs } = await get(path);
  const name = logs.map((log) => log.name).sort()[0];
  return name === undefined ? "" : text(`${path}/${encodeURIComponent(name)}`);
}

const driverLog = (job) => `v1/jobmanager/logs/${encodeURIComponent(`${job}-driver.log`)}`;

/** Ids of slots are those of their job and a number. */
const nameOf = (id) => `slot ${id.slice(id.lastIndexOf("-") + 1)}`;

/** Key groups by operator, told once where all operators have the same. */
function groups(slot) {
  const ranges = Object.entries(slot["key-groups"] || {}).map(([name, [first, last]]) => [name, `${first}–${last}`]);
  if (!ranges.length) return NOTHING;
  return new Set(ranges.map(([, range]) => range)).size === 1 ? ranges[0][1] : ranges.map(([name, range]) => `${name} ${range}`).join(", ");
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
