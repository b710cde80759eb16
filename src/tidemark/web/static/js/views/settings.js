// Configuration: what was set, by which layer, and what is set without effect.
import { jobPath } from "../api.js";
import { count } from "../format.js";
import { badge, code, empty, filterBox, loaded, table } from "../parts.js";
import { h } from "../vdom.js";

export class Settings {
  constructor(context) {
    this.context = context;
    this.settings = context.resource(jobPath(context.job, "settings"));
    this.filter = "";
    this.idle = false;
  }

  render() {
    return loaded(this.settings, ({ settings }) => {
      if (!settings.length) {
        return empty("Nothing is set; every option has its default.",
          "Set options in ", code("tidemark-conf.yaml"), ", with ", code("tidemark run -D key=value"), " or in the program.");
      }
      const without = settings.filter((each) => each.effect === false);
      const wanted = this.filter.toLowerCase();
      const shown = (this.idle ? without : settings)
        .filter((each) => `${each.key} ${each.value} ${each.layer}`.toLowerCase().includes(wanted));
      return [this.controls(without.length), shown.length ? this.table(shown) : empty("No setting fits.")];
    });
  }

  controls(without) {
    const change = (field, value) => { this[field] = value; this.context.repaint(); };
    return h("div", { class: "controls" },
      filterBox("Filter by key, value or layer", this.filter, (value) => change("filter", value)),
      without ? h("label", { class: "check" },
        h("input", { type: "checkbox", checked: this.idle, onchange: (e) => change("idle", e.target.checked) }),
        h("span", {}, `Only what has no effect (${count(without)})`)) : null);
  }

  table(settings) {
    return table([
      { name: "Option", wide: true, cell: (row) => [code(row.key), row.effect === false ? badge("no effect", "warn") : null] },
      { name: "Value", cell: (row) => code(typeof row.value === "string" ? row.value : JSON.stringify(row.value)) },
      { name: "Set by", cell: (row) => row.layer },
      { name: "Note", wide: true, cell: (row) => (row.reason ? h("span", { class: "hint" }, row.reason) : "") },
    ], settings, { key: (row) => `${row.key} ${row.layer}`, caption: "Settings", rowClass: (row) => (row.effect === false ? "without-effect" : null) });
  }
}
