// The login page: says when a token was refused.
document.getElementById("refused").hidden = !new URLSearchParams(location.search).has("error");
