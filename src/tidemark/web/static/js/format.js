// Numbers as a person reads them. Every function answers an em dash for what is not known.

export const NOTHING = "–";
const known = (value) => value !== null && value !== undefined && Number.isFinite(Number(value));

// Watermarks before the first one and after the end of the input, as Flink numbers them. Doubles round them.
const NO_WATERMARK = -9e18;
const END_OF_INPUT = 9e18;
const DAY = 86_400_000;

/** 1234567 → "1,234,567" */
export function count(value) {
  return known(value) ? Number(value).toLocaleString("en-US") : NOTHING;
}

/** 1234567 → "1.23 M"; three digits are enough to compare by eye. */
export function short(value) {
  if (!known(value)) return NOTHING;
  const number = Number(value);
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (Math.abs(number) >= size * 0.9995) return `${digits(number / size)} ${unit}`;
  }
  return digits(number);
}

function digits(number) {
  const size = Math.abs(number);
  if (size >= 100 || Number.isInteger(number)) return String(Math.round(number));
  return number.toFixed(size >= 10 ? 1 : 2).replace(/\.?0+$/, "");
}

/** Records per second. */
export const rate = (value) => (known(value) ? `${short(value)}/s` : NOTHING);

/** Sizes in powers of 1,000, as the command line shows them. */
export function bytes(value) {
  if (!known(value) || Number(value) < 0) return NOTHING;
  let size = Number(value);
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (size < 1000) return `${digits(size)} ${unit}`;
    size /= 1000;
  }
  return `${digits(size)} TB`;
}

/** Milliseconds → "340 ms", "3.4 s", "2 min 5 s", "3 h 4 min", "2 d 3 h". */
export function duration(value) {
  if (!known(value) || Number(value) < 0) return NOTHING;
  const ms = Number(value);
  if (ms < 1000) return `${ms < 10 ? digits(ms) : Math.round(ms)} ms`;
  if (ms < 59_950) return `${digits(Math.round(ms / 100) / 10)} s`;
  const seconds = Math.round(ms / 1000);
  const parts = [["d", 86_400], ["h", 3600], ["min", 60], ["s", 1]];
  const at = parts.findIndex(([, size]) => seconds >= size);
  const [unit, size] = parts[at];
  const [lesserUnit, lesserSize] = parts[at + 1];
  const lesser = Math.floor((seconds % size) / lesserSize);
  return `${Math.floor(seconds / size)} ${unit}` + (lesser ? ` ${lesser} ${lesserUnit}` : "");
}

/** A duration in whole seconds: for what is shown while it grows. */
export function elapsed(ms) {
  return known(ms) ? duration(Math.max(0, Math.floor(Number(ms) / 1000) * 1000)).replace(/^0 ms$/, "0 s") : NOTHING;
}

const two = (number) => String(number).padStart(2, "0");

/** "16:40:12" today, "2026-11-15 16:40:12" otherwise, in the reader's time zone. */
export function time(timestamp, now = Date.now()) {
  if (!known(timestamp) || Number(timestamp) < 0) return NOTHING;
  const at = new Date(Number(timestamp));
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const today = at.toDateString() === new Date(now).toDateString();
  return today ? clock : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock}`;
}

/** The whole instant, for tooltips. */
export function instant(timestamp) {
  return known(timestamp) && Math.abs(Number(timestamp)) < 8.6e15 ? new Date(Number(timestamp)).toISOString() : "";
}

export function ago(timestamp, now) {
  return known(timestamp) && Number(timestamp) >= 0 ? `${elapsed(now - timestamp)} ago` : NOTHING;
}

/** How far event time is behind the clock; the event time itself where the two have nothing to do with each other. */
export function watermark(value, now) {
  if (!known(value)) return NOTHING;
  const at = Number(value);
  if (at <= NO_WATERMARK) return "none yet";
  if (at >= END_OF_INPUT) return "end of input";
  const lag = now - at;
  if (Math.abs(lag) < DAY) return lag >= 0 ? `${elapsed(lag)} behind` : `${elapsed(-lag)} ahead`;
  return at >= 0 && at < 8.6e15 ? time(at, now) : String(value);
}

export const percent = (share) => (known(share) ? `${Math.round(share * 100)} %` : NOTHING);

/** "EXACTLY_ONCE" → "exactly once" */
export const words = (name) => String(name ?? NOTHING).toLowerCase().replaceAll("_", " ").replaceAll("-", " ");
