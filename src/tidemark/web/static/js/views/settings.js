// Configuration: what was set, by which layer, and what is set without effect.
import { jobPath } from "../api.js";
import { count } from "../format.js";
import { badge, code, empty, filterBox, loaded, table } from "../parts.js";
import { h } from "../vdom.js";

const DEFAULT = "default";

export class Settings {
  constructor(context) {
    this.context = context;
    this.settings = context.resource(jobPath(context.job, "settings"));
    this.filter = "";
    this.idle = false;
    this.defaults = false;
  }

  render() {
    return loaded(this.settings, ({ settings }) => {
      if (!settings.length) {
        return empty("Nothing is set; every option has its default.",
          "Set options in ", code("tidemark-conf.yaml"), ", with ", code("tidemark run -D key=value"), " or in the program.");
      }
      const wanted = this.filter.toLowerCase();
      const fits = (each) => (this.defaults || each.layer !== DEFAULT) && (!this.idle || each.effect === false)
        && `${each.key} ${each.value} ${each.layer}`.toLowerCase().includes(wanted);
      const shown = settings.filter(fits);
      return [this.controls(settings), shown.length ? this.table(shown) : empty("No setting fits.", "Change the filter, or show the defaults too.")];
    });
  }

  controls(settings) {
    const change = (field, value) => { this[field] = value; this.context.repaint(); };
    const box = (field, label, number) => number ? h("label", { class: "check", key: field },
      h("input", { type: "checkbox", checked: this[field], onchange: (e) => change(field, e.target.checked) }),
      h("span", {}, `${label} (${count(number)})`)) : null;
    return h("div", { class: "controls" },
      filterBox("Filter by key, value or layer", this.filter, (value) => change("filter", value)),
      box("idle", "Only what has no effect", settings.filter((each) => each.effect === false).length),
      box("defaults", "Show defaults", settings.filter((each) => each.layer === DEFAULT).length));
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
