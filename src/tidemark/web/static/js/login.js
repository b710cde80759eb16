// The login page: says when a token was refused, and remembers where the reader wanted to go.
const query = new URLSearchParams(location.search);
document.getElementById("refused").hidden = !query.has("error");
const next = query.get("next") || "";
// Only a place on our own page: an address of somebody else's would be a lure.
if (next.startsWith("#/")) document.querySelector("input[name=next]").value = next;
