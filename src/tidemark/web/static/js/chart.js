// Live curves. Each chart draws itself on a canvas (uPlot) and shows its newest value, or the one under the pointer.
import uPlot from "../vendor/uplot/uPlot.esm.js";
import { NOTHING } from "./format.js";
import { h } from "./vdom.js";

const HEIGHT = 136;
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
const charts = new Set();
const redrawAll = () => charts.forEach((chart) => chart.plot?.redraw(false));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
new MutationObserver(redrawAll).observe(document.documentElement, { attributeFilter: ["data-theme"] });

/**
 * A chart as a node.
 * @param {{title: string, format: (value: number) => string, curves: {name: string, colour: string, values: number[]}[],
 *   timestamps: number[]}} props timestamps in milliseconds; a null is a moment without a value
 */
export function chart(props) {
  return h("figure", { class: "chart", key: props.title, "aria-label": props.title, mount: (el) => mount(el, props), update: (el) => el.chart.set(props), unmount: (el) => el.chart.dispose() });
}

function mount(element, props) {
  element.chart = new Chart(element, props);
  element.chart.set(props);
}

class Chart {
  constructor(element, props) {
    this.body = document.createElement("div");
    this.body.className = "chart-body";
    this.values = props.curves.map((curve) => {
      const value = document.createElement("strong");
      value.className = curve.colour;
      return value;
    });
    element.append(this.caption(props), this.body);
    this.observer = new ResizeObserver(() => this.plot?.setSize({ width: this.width, height: HEIGHT }));
    this.observer.observe(this.body);
    charts.add(this);
  }

  get width() {
    return Math.max(120, Math.floor(this.body.clientWidth));
  }

  caption({ title, curves }) {
    const caption = document.createElement("figcaption");
    const name = document.createElement("span");
    name.textContent = title;
    caption.append(name);
    curves.forEach((curve, i) => {
      const label = document.createElement("span");
      label.className = "chart-value";
      if (curves.length > 1) label.append(`${curve.name} `);
      label.append(this.values[i]);
      caption.append(label);
    });
    return caption;
  }

  /** Shows new data; nothing is drawn while it is the same as before. */
  set(props) {
    const newest = props.timestamps.at(-1);
    if (this.props && newest === this.newest && props.timestamps.length === this.props.timestamps.length) return;
    this.props = props;
    this.newest = newest;
    const data = [props.timestamps.map((ms) => ms / 1000), ...props.curves.map((curve) => curve.values)];
    if (this.plot) this.plot.setData(data);
    else this.plot = new uPlot(this.options(props), data, this.body);
    this.show(null);
  }

  show(index) {
    this.props.curves.forEach((curve, i) => {
      const value = index === null ? curve.values.findLast((v) => v !== null && v !== undefined) : curve.values[index];
      this.values[i].textContent = value === null || value === undefined ? NOTHING : this.props.format(value);
    });
  }

  options({ format, curves }) {
    const axis = { stroke: () => colour("--muted"), font: "11px system-ui, sans-serif", ticks: { show: false }, grid: { stroke: () => colour("--line"), width: 1 } };
    return {
      width: this.width,
      height: HEIGHT,
      legend: { show: false },
      cursor: { y: false, sync: { key: "job" }, drag: { x: false, y: false }, points: { size: 6 } },
      scales: { y: { range: (_, least, most) => [0, most > 0 ? most * 1.15 : 1] } },
      axes: [
        { ...axis, grid: { show: false }, space: 90, size: 24, values: (_, splits) => splits.map(clock) },
        { ...axis, size: 64, space: 26, values: (_, splits) => splits.map((value) => format(value)) },
      ],
      series: [{}, ...curves.map((curve) => ({
        stroke: () => colour(`--${curve.colour}`), width: 1.75, spanGaps: true, points: { show: false },
        fill: curves.length === 1 ? () => colour(`--${curve.colour}-soft`) : undefined,
      }))],
      hooks: { setCursor: [(plot) => this.show(plot.cursor.left >= 0 ? plot.cursor.idx : null)] },
    };
  }

  dispose() {
    charts.delete(this);
    this.observer.disconnect();
    this.plot?.destroy();
  }
}

function clock(seconds) {
  return new Date(seconds * 1000).toTimeString().slice(0, 8);
}
