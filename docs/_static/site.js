// What scrolls can be reached with a keyboard, and the two side columns have names.
(() => {
  "use strict";
  const SCROLLS = "pre, .table-wrapper, .formula, .diagram-frame";

  function reach() {
    for (const part of document.querySelectorAll(SCROLLS)) {
      const scrolls = part.scrollWidth > part.clientWidth || part.scrollHeight > part.clientHeight;
      if (scrolls) part.tabIndex = 0;
      else part.removeAttribute("tabindex");
    }
  }

  function name(selector, label) {
    document.querySelector(selector)?.setAttribute("aria-label", label);
  }

  document.addEventListener("DOMContentLoaded", () => {
    name(".sidebar-drawer", "Site");
    name(".toc-drawer", "This page");
    reach();
  });
  window.addEventListener("load", reach);
  window.addEventListener("resize", reach);
  document.addEventListener("toggle", reach, true); // a table that was folded
})();
