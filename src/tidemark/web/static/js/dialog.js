// Questions before something irreversible; the browser's own modal dialog keeps the focus and closes on Escape.
import { h, render } from "./vdom.js";

/** Asks; resolves with null when the reader thinks better of it, else with the values of `fields` by name. */
export function ask({ title, text, action, danger, fields = [] }) {
  const host = document.createElement("div");
  document.body.append(host);
  return new Promise((resolve) => {
    let answer = null;
    const close = () => host.querySelector("dialog").close();
    const submit = (event) => {
      event.preventDefault();
      answer = Object.fromEntries(new FormData(event.target));
      close();
    };
    const closed = () => {
      render(host);
      host.remove();
      resolve(answer);
    };
    render(host, h("dialog", { class: "dialog", "aria-labelledby": "dialog-title", onclose: closed, mount: (dialog) => dialog.showModal() },
      h("form", { onsubmit: submit },
        h("h2", { id: "dialog-title" }, title),
        h("p", {}, text),
        fields.map((field) => h("label", { key: field.name, class: field.type === "checkbox" ? "check" : "field" },
          h("span", {}, field.label), h("input", { type: "text", ...field, label: null }))),
        h("div", { class: "actions" },
          h("button", { type: "button", class: "button", onclick: close }, "Go back"),
          h("button", { type: "submit", class: `button ${danger ? "danger" : "primary"}` }, action)))));
  });
}
