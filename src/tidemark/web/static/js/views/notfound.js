// An address that leads nowhere.
import { empty } from "../parts.js";
import { link } from "../router.js";
import { h } from "../vdom.js";

export class NotFound {
  render() {
    return empty("There is no such page.", h("a", { href: link() }, "See all jobs"));
  }
}
