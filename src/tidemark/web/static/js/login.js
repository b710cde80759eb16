// The login page: says when a token was refused, and remembers where the reader wanted to go.
import { rememberPlace } from "./place.js";

// A refusal is this very page with the status of an error.
const [{ responseStatus }] = performance.getEntriesByType("navigation");
document.getElementById("refused").hidden = !(responseStatus >= 400);

// A server that leads here from the page itself leaves the part after # as it was.
rememberPlace(location.hash);
