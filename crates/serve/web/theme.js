// Before the first paint: the theme that was chosen last, if it is not the system's.
const theme = (() => {
  try {
    return localStorage.getItem("flash-moe.theme");
  } catch {
    return null;
  }
})();
if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
