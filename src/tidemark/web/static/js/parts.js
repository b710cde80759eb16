// The pieces views are made of: pills, figures, tables, empty states, errors, pages.
import { count, instant, NOTHING, percent, time } from "./format.js";
import { h } from "./vdom.js";

const TONES = {
  RUNNING: "good", COMPLETED: "good", FINISHED: "quiet", IN_PROGRESS: "busy", CREATED: "busy", SCHEDULED: "busy",
  DEPLOYING: "busy", INITIALIZING: "busy", RESTARTING: "warn", CANCELLING: "warn", CANCELING: "warn", FAILING: "bad",
  FAILED: "bad", CANCELED: "quiet", SUSPENDED: "warn", RECONCILING: "warn", STOPPED: "quiet", UNKNOWN: "quiet",
};
const ENDED = new Set(["FINISHED", "FAILED", "CANCELED", "STOPPED", "SUSPENDED"]);

export const tone = (state) => TONES[state] || "quiet";
export const ended = (state) => ENDED.has(state);

/** A state as a word with a colour; the word alone says it too. */
export const pill = (state) =>
  h("span", { class: `pill ${tone(state)}`, "data-state": state }, String(state ?? "unknown").toLowerCase().replaceAll("_", " "));

export const badge = (text, kind = "") => h("span", { class: `badge ${kind}` }, text);

/** An instant: short to read, whole in the tooltip. */
export const moment = (timestamp, now) =>
  h("time", { title: instant(timestamp), datetime: instant(timestamp) || null }, time(timestamp, now));

/** One figure with its name, as in the strip on top of a view. */
export const figure = (name, value, note, props = {}) =>
  h("div", { class: `figure ${props.tone || ""}`, "data-figure": name },
    h("dt", {}, name), h("dd", {}, value), note ? h("dd", { class: "note" }, note) : null);

export const figures = (...items) => h("dl", { class: "figures" }, items);

/** Names with values: [name, value] or, for what is long, [name, value, true]. */
export const facts = (pairs) =>
  h("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, value, wide]) =>
    h("div", { key: name, class: wide ? "wide" : null }, h("dt", {}, name), h("dd", {}, value ?? NOTHING))));

export const card = (title, ...children) =>
  h("section", { class: "card" }, title ? h("h2", {}, title) : null, children);

/** Nothing to show, and what to do about it. */
export const empty = (title, ...advice) =>
  h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), advice.length ? h("p", {}, advice) : null);

export const code = (text) => h("code", {}, text);

/** What the server said, as it said it. */
export const problem = (error, again) =>
  h("div", { class: "problem", role: "alert" }, h("p", {}, error.message),
    again ? h("button", { type: "button", class: "button", onclick: again }, "Try again") : null);

export const waiting = () => h("div", { class: "waiting", "aria-busy": "true" }, h("span", { class: "spinner" }), "Loading…");

/** Shows a resource: waiting, the server's error, or what `show` makes of the data. */
export function loaded(resource, show) {
  if (resource.data !== undefined) return show(resource.data);
  return resource.error ? problem(resource.error, () => resource.reload()) : waiting();
}

/**
 * A table. On narrow screens each row becomes a card with its column names; a `dense` one stays a table, its first
 * column in place while the others scroll.
 * @param {{name: string, cell: (row: any) => any, number?: boolean, wide?: boolean}[]} columns
 * @param {{key: (row) => any, caption: string, dense?: boolean, rowClass?: (row) => string?, below?: (row) => any}} options
 *   `below` is what stands under a row over all columns, if anything
 */
export function table(columns, rows, { key, caption, dense, rowClass, below }) {
  const cell = (column, row) =>
    h("td", { class: [column.number && "number", column.wide && "wide"].filter(Boolean).join(" ") || null, "data-label": column.name }, column.cell(row));
  return h("div", { class: dense ? "table dense" : "table", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {},
      h("thead", {}, h("tr", {}, columns.map((c) => h("th", { scope: "col", class: c.number ? "number" : null }, c.name)))),
      h("tbody", {}, rows.map((row) => {
        const more = below?.(row);
        return [h("tr", { key: key(row), class: rowClass?.(row) }, columns.map((column) => cell(column, row))),
          more ? h("tr", { key: `below ${key(row)}`, class: "below" }, h("td", { colspan: columns.length }, more)) : null];
      }))));
}

/** Busy, back-pressured and idle shares as one bar. */
export function shares({ busy, backpressured, idle }) {
  const parts = [["busy", busy], ["back-pressured", backpressured], ["idle", idle]];
  const known = parts.filter(([, share]) => share !== null && share !== undefined);
  if (!known.length) return h("div", { class: "shares unknown", role: "img", "aria-label": "time not measured", title: "Not measured" });
  const label = known.map(([name, share]) => `${name} ${percent(share)}`).join(", ");
  return h("div", { class: "shares", role: "img", "aria-label": label, title: label },
    known.map(([name, share]) => h("span", { key: name, class: name, style: { width: `${Math.max(0, Math.min(1, share)) * 100}%` } })));
}

/** Acknowledged of all, as a bar with words. */
export const progress = (done, all) =>
  h("span", { class: "progress" }, h("progress", { value: done, max: all || 1 }), h("span", {}, `${count(done)} of ${count(all)}`));

/** Newer and older; `total` may be unknown. */
export function pager({ offset, limit, shown, total, onPage }) {
  if (offset === 0 && shown < limit && !(total > shown)) return null;
  const last = shown < limit || (total !== undefined && offset + shown >= total);
  return h("nav", { class: "pager", "aria-label": "Pages" },
    h("button", { type: "button", class: "button", disabled: offset === 0, onclick: () => onPage(Math.max(0, offset - limit)) }, "Newer"),
    h("span", {}, shown ? `${count(offset + 1)}–${count(offset + shown)}` : "none", total === undefined ? "" : ` of ${count(total)}`),
    h("button", { type: "button", class: "button", disabled: last, onclick: () => onPage(offset + limit) }, "Older"));
}

export const filterBox = (label, value, onInput) =>
  h("input", { type: "search", class: "filter", placeholder: label, "aria-label": label, value, oninput: (e) => onInput(e.target.value) });

/** Browsers lend the clipboard to pages on loopback and with TLS only; elsewhere there is no button. */
export const copyButton = (text) => navigator.clipboard ?
  h("button", {
    type: "button", class: "button small",
    onclick: async (event) => {
      const button = event.currentTarget;
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    },
  }, "Copy") : null;

/** Summary rows: minimum, average, percentiles, maximum. */
export const QUANTILES = [["Minimum", "min"], ["Average", "avg"], ["p50", "p50"], ["p95", "p95"], ["p99", "p99"], ["Maximum", "max"]];

export function summaryTable(rows, caption) {
  return table(
    [{ name: "", cell: (row) => h("strong", {}, row.name) },
      ...QUANTILES.map(([name, field]) => ({ name, number: true, cell: (row) => row.format(row.stats?.[field]) }))],
    rows, { key: (row) => row.name, caption, dense: true });
}


/** Links side by side, one of them open; it is kept in sight where not all of them fit. */
export const tabBar = (kind, label, tabs) =>
  h("nav", { class: kind, "aria-label": label }, tabs.map(({ name, href, open }) =>
    h("a", { key: href, href, "aria-current": open ? "page" : null, ...keptInSight(open) }, name)));

function keptInSight(open) {
  const changed = (tab) => {
    const bar = tab.parentElement;
    if (open && !tab.wasOpen) bar.scrollTo({ left: tab.offsetLeft - (bar.clientWidth - tab.clientWidth) / 2 });
    tab.wasOpen = open;
  };
  return { mount: changed, update: changed };
}
