// What scrolls sideways can be reached by keys.
addEventListener("DOMContentLoaded", () => {
  for (const block of document.querySelectorAll("pre, .scroll, .table-wrapper")) {
    if (block.scrollWidth > block.clientWidth) block.tabIndex = 0;
  }
});
