// Runs before the first paint, as a classic script, so that no page flashes in the wrong colours.
(() => {
  const KEY = "tidemark-theme";
  const CHOICES = ["auto", "light", "dark"];
  const stored = () => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // storage may be forbidden; the theme then lasts as long as the page
    }
  };
  let choice = CHOICES.includes(stored()) ? stored() : "auto";
  const apply = () => document.documentElement.setAttribute("data-theme", choice);
  apply();

  window.tidemarkTheme = {
    get choice() {
      return choice;
    },
    next() {
      choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length];
      apply();
      try {
        localStorage.setItem(KEY, choice);
      } catch {
        // see above
      }
      return choice;
    },
  };
})();
