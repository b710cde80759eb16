// Where the reader was when a login was asked for: kept in the tab until the page is there again.
const KEY = "tidemark-place";

export function rememberPlace(hash) {
  if (hash.startsWith("#/")) sessionStorage.setItem(KEY, hash);
}

/** The place that was remembered, once; null if there is none, or if the address names one. */
export function recallPlace() {
  const place = location.hash ? null : sessionStorage.getItem(KEY);
  sessionStorage.removeItem(KEY);
  return place;
}
