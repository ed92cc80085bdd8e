(() => {
  "use strict";
  const root = document.documentElement;
  const all = (what) => document.querySelectorAll(what);
  const byId = (id) => document.getElementById(id);
  const text = (ids) => ids.split(" ").map((id) => byId(id)?.textContent ?? "").filter(Boolean).join("  ");

  const select = (id) => {
    const range = document.createRange();
    range.selectNodeContents(byId(id));
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
  };

  for (const button of all("button")) button.hidden = false;
  for (const input of all("input")) input.hidden = false;

  for (const button of all("[data-copy]")) {
    button.addEventListener("click", async () => {
      const ids = button.dataset.copy;
      const was = button.textContent;
      try {
        await navigator.clipboard.writeText(text(ids));
        button.textContent = "Copied";
        setTimeout(() => (button.textContent = was), 1200);
      } catch {
        const id = ids.split(" ")[0];
        byId(id).closest("details")?.setAttribute("open", "");
        select(id);
      }
    });
  }

  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  byId("theme")?.addEventListener("click", () => (root.dataset.theme = dark() ? "light" : "dark"));

  for (const time of all("time")) {
    const at = new Date(time.dateTime);
    if (!isNaN(at)) time.title = "here: " + at.toLocaleString();
  }

  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...all("details:not([open]):not([data-long])")];
    for (const one of closed) one.open = true;
  });
  addEventListener("afterprint", () => closed.forEach((one) => (one.open = false)));

  byId("filter")?.addEventListener("input", (event) => {
    const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of all("#ranks tbody tr")) {
      const cells = [...row.cells].map((cell) => cell.textContent.toLowerCase());
      row.hidden = !words.every((word) => cells.some((cell) => (/^\d+$/.test(word) ? cell === word : cell.includes(word))));
    }
  });
})();
