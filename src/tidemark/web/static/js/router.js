// Addresses: everything after `#/`. A view is found by pattern; `:name` takes one part of the address.

export function parse(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  return { parts: path.split("/").filter(Boolean).map(decode), query: new URLSearchParams(query || "") };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // typed by hand; the view will say that there is no such thing
  }
}

/** The first route that fits, with its parameters, or null. */
export function match(routes, hash) {
  const { parts, query } = parse(hash);
  for (const [pattern, view] of routes) {
    const wanted = pattern.split("/").filter(Boolean);
    if (wanted.length !== parts.length) continue;
    const params = {};
    const fits = wanted.every((part, i) => {
      if (part.startsWith(":")) params[part.slice(1)] = parts[i];
      return part.startsWith(":") || part === parts[i];
    });
    if (fits) return { view, params, query };
  }
  return null;
}

/** `link("jobs", id, "slots")` → "#/jobs/…/slots" */
export const link = (...parts) => `#/${parts.map((part) => encodeURIComponent(part)).join("/")}`;
