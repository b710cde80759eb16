// State: what each operator keeps, and a box that looks up one key of a queryable state.
import { get, jobPath } from "../api.js";
import { bytes, count, duration } from "../format.js";
import { badge, card, code, empty, loaded, table } from "../parts.js";
import { h } from "../vdom.js";

const EVERY_MS = 10_000;

export class States {
  constructor(context) {
    this.context = context;
    this.states = context.resource(jobPath(context.job, "states"), { every: EVERY_MS });
    this.name = "";
    this.key = "";
    this.answer = null;
  }

  render() {
    return loaded(this.states, ({ operators }) => {
      const keeping = operators.filter((operator) => operator.states.length);
      if (!keeping.length) {
        return empty("No operator of this job keeps state yet.",
          "State appears here when a function first asks for it, for example with ", code("ctx.get_state(ValueStateDescriptor(...))"), ".");
      }
      return [this.lookUp(keeping), keeping.map((operator) => this.operator(operator))];
    });
  }

  operator({ uid, name, states }) {
    return h("section", { class: "card", key: uid, "data-operator": uid },
      h("div", { class: "card-head" }, h("h2", {}, name), name === uid ? null : h("code", { class: "id", title: "uid" }, uid)),
      table([
        { name: "State", cell: (row) => [h("strong", {}, row.name), row["queryable-name"] ? badge(`queryable as ${row["queryable-name"]}`) : null] },
        { name: "Kind", cell: (row) => row.kind ?? "–" },
        { name: "Type", cell: (row) => (row.type ? code(row.type) : "–") },
        { name: "Time to live", number: true, cell: (row) => (row["ttl-ms"] ? duration(row["ttl-ms"]) : "for ever") },
        { name: "Entries", number: true, cell: (row) => count(row.entries) },
        { name: "Size", number: true, cell: (row) => bytes(row.bytes) },
      ], states, { key: (row) => row.name, caption: `States of ${name}` }));
  }

  lookUp(operators) {
    const names = [...new Set(operators.flatMap((operator) => operator.states.map((state) => state["queryable-name"]).filter(Boolean)))];
    if (!names.length) {
      return card("Look up a key", h("p", { class: "hint" },
        "No state is queryable. Make one so with ", code('descriptor.set_queryable("name")'), " and ", code("queryable-state.enable: true"), "."));
    }
    if (!names.includes(this.name)) this.name = names[0];
    return card("Look up a key",
      h("form", { class: "inline", onsubmit: (event) => { event.preventDefault(); this.ask(); } },
        h("label", { class: "field" }, h("span", {}, "State"),
          h("select", { name: "state", value: this.name, onchange: (e) => (this.name = e.target.value) },
            names.map((name) => h("option", { key: name, value: name }, name)))),
        h("label", { class: "field" }, h("span", {}, "Key, as JSON"),
          h("input", { type: "text", name: "key", required: true, value: this.key, placeholder: '42, "anna" or [1, "x"]', autocomplete: "off", spellcheck: "false", oninput: (e) => (this.key = e.target.value) })),
        h("button", { type: "submit", class: "button primary" }, "Look up")),
      this.result());
  }

  async ask() {
    const key = asJson(this.key);
    this.answer = { key, waiting: true };
    this.context.repaint();
    const asked = this.answer;
    try {
      const path = `${jobPath(this.context.job, "states", "query")}?name=${encodeURIComponent(this.name)}&key=${encodeURIComponent(key)}`;
      this.answer = { key, value: (await get(path)).value };
    } catch (error) {
      if (this.answer === asked) this.answer = { key, error };
    }
    this.context.repaint();
  }

  result() {
    if (!this.answer) return h("p", { class: "hint" }, "Reads the live state of the running job.");
    const { key, value, error, waiting } = this.answer;
    return h("div", { class: "answer", "aria-live": "polite" },
      h("p", {}, "Key ", code(key)),
      waiting ? h("p", {}, "Looking…")
      : error ? h("p", { class: "bad-text", role: "alert" }, error.message)
      : value === null ? h("p", {}, "holds nothing for this key.")
      : h("pre", { class: "trace", "data-value": "" }, JSON.stringify(value, null, 2)));
  }
}

/** What was typed, as JSON; a bare word is meant as text. */
function asJson(typed) {
  try {
    JSON.parse(typed);
    return typed.trim();
  } catch {
    return JSON.stringify(typed);
  }
}
