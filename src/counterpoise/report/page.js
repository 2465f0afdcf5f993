"use strict";
// Fills the sections of the page from its data. Names and texts only ever become text nodes.
const report = (() => {
  const root = document.documentElement;
  const page = JSON.parse(document.getElementById("data").textContent);
  const STEP = innerWidth < 600 ? 10 : 25; // rows of a table that are added at a time
  const WHOLE = innerWidth < 600 ? 12 : 50; // rows of a table that is shown whole
  const FEW = 8; // rows that need no tools
  const CARD = 10; // columns that a card has room for
  const choices = {}; // by name: the ticked numbers, and whom to tell
  const listeners = []; // called when the theme changes
  const charts = []; // figures that wait to be drawn

  function make(tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (key === "on") for (const [event, call] of Object.entries(value)) node.addEventListener(event, call);
      else if (value !== null && value !== false) node.setAttribute(key, value === true ? "" : value);
    }
    node.append(...children.flat(3).filter((child) => child !== null && child !== undefined));
    return node;
  }

  function number(value) {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-4 || size >= 1e7)) return value.toExponential(2);
    if (Number.isInteger(value)) return value.toLocaleString("en-US");
    const decimals = Math.max(0, 3 - Math.floor(Math.log10(size)));
    return value.toLocaleString("en-US", { maximumFractionDigits: decimals });
  }

  function share(value) {
    if (value === null || value === undefined) return "–";
    if (value === 0) return "0%";
    return Math.abs(value) < 1e-4 ? "<0.01%" : `${number(Number((100 * value).toPrecision(3)))}%`;
  }

  const change = (value) => (value > 0 ? `+${share(value)}` : share(value).replace("-", "−"));

  function points(value) {
    if (value === null || value === undefined) return "–";
    const shown = (Math.round(1000 * value) / 10).toFixed(1);
    return `${value > 0 ? "+" : ""}${shown === "-0.0" ? "0.0" : shown.replace("-", "−")} pts`;
  }

  function interval([value, low, high], as = number) {
    if (value === null) return ["–", ""];
    const bounds = low === null && high === null ? "" : `[${low === null ? "−∞" : as(low)}, ${high === null ? "∞" : as(high)}]`;
    return [as(value), bounds];
  }
  const FORMATS = { share, change, points };

  // Tables -------------------------------------------------------------------------------------
  const MARKS = { holds: "✓", doubtful: "?", violated: "✗" };
  const RANKS = { holds: 0, doubtful: 1, violated: 2 };

  function cell(value, kind) {
    if (kind === "verdict") {
      const [status, evidence] = value;
      const word = make("summary", { class: `verdict ${status}`, title: evidence }, `${MARKS[status] || ""} ${status}`);
      return make("td", {}, make("details", {}, word, make("div", { class: "evidence" }, evidence)));
    }
    if (kind.endsWith("interval")) {
      const [middle, bounds] = interval(value, FORMATS[kind.replace("-interval", "")]);
      return make("td", { class: "right" }, make("span", {}, middle, bounds ? make("span", { class: "bounds" }, ` ${bounds}`) : null));
    }
    if (kind === "text") return make("td", { dir: "auto" }, value === null ? "–" : value);
    return make("td", { class: "right" }, (FORMATS[kind] || number)(value));
  }

  function order(value, kind) {
    if (kind === "verdict") return RANKS[value[0]];
    return kind.endsWith("interval") ? value[0] : value;
  }

  function table(block) {
    let sorted = block.sort;
    let rows = block.rows;
    let shown = STEP;
    let wanted = "";
    const body = make("tbody", { role: "rowgroup" });
    const small = block.rows.length <= FEW;
    const status = make("span", { class: small ? "skip" : "status", role: "status" });
    const more = make("button", { class: "button", type: "button", on: { click: () => { shown += 4 * STEP; fill(); } } });
    const tail = make("div", { class: "tools" }, more);
    const heads = block.columns.map((column, i) => {
      const right = !["text", "verdict"].includes(column.as);
      const button = make("button", { type: "button", on: { click: () => sort(i) } }, column.name);
      return make("th", { scope: "col", role: "columnheader", class: right ? "right" : null }, button);
    });

    function fill() {
      const kept = wanted ? rows.filter((row) => String(row[0]).toLowerCase().includes(wanted)) : rows;
      if (kept.length <= WHOLE) shown = Math.max(shown, kept.length);
      body.replaceChildren(...kept.slice(0, shown).map((row) => {
        const cells = row.map((value, i) => cell(value, block.columns[i].as));
        cells[0].classList.add("name");
        cells.forEach((one, i) => { one.setAttribute("role", "cell"); one.dataset.name = block.columns[i].name; });
        return make("tr", { role: "row" }, cells);
      }));
      heads.forEach((head, i) => {
        if (sorted && sorted[0] === i) head.setAttribute("aria-sort", sorted[1]);
        else head.removeAttribute("aria-sort");
      });
      tail.hidden = kept.length <= shown;
      more.textContent = `Show ${Math.min(4 * STEP, kept.length - shown)} more`;
      const by = sorted ? `, by ${block.columns[sorted[0]].name}, ${sorted[1]}` : "";
      status.textContent = `${Math.min(shown, kept.length).toLocaleString("en-US")} of ${kept.length.toLocaleString("en-US")} rows${by}`;
    }

    function sort(column) {
      const kind = block.columns[column].as;
      const first = kind === "text" ? "ascending" : "descending";
      const other = first === "ascending" ? "descending" : "ascending";
      sorted = [column, sorted && sorted[0] === column && sorted[1] === first ? other : first];
      const sign = sorted[1] === "ascending" ? 1 : -1;
      rows = [...block.rows].sort((a, b) => {
        const [x, y] = [order(a[column], kind), order(b[column], kind)];
        if (x === null || y === null) return (x === null) - (y === null); // unknown comes last
        if (kind === "text") return sign * String(x).localeCompare(String(y), "en", { numeric: true });
        return sign * (x - y);
      });
      fill();
    }

    const search = block.search && !small ? make("input", {
      type: "search", placeholder: "Find a row", "aria-label": `Filter the table: ${block.caption}`,
      on: { input: (event) => { wanted = event.target.value.toLowerCase(); shown = STEP; fill(); } },
    }) : null;
    fill();
    // Roles are said aloud because a phone shows rows as cards, which are no table to a browser.
    const grid = make("table", { id: block.id, role: "table" }, make("caption", { class: "skip" }, block.caption),
      make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, heads)), body);
    const hint = make("p", { class: "hint", hidden: true }, "Scroll the table sideways to see all columns. →");
    const scroll = make("div", { class: "scroll" }, grid);
    const edge = make("div", { class: "edge" }, scroll);

    // A table that is wider than its place can be scrolled with the keyboard, and says so.
    function measure() {
      const beyond = scroll.scrollWidth - scroll.clientWidth;
      const wide = beyond > 1;
      edge.toggleAttribute("data-scrolls", wide);
      edge.toggleAttribute("data-more", wide && scroll.scrollLeft < beyond - 1);
      hint.hidden = !wide;
      const named = { tabindex: "0", role: "region", "aria-label": block.caption };
      for (const [key, value] of Object.entries(named)) if (wide) scroll.setAttribute(key, value); else scroll.removeAttribute(key);
    }
    const watch = new ResizeObserver(measure);
    watch.observe(scroll);
    watch.observe(grid);
    scroll.addEventListener("scroll", measure, { passive: true });
    const cards = block.columns.length <= CARD ? ` cards${block.rows.length <= FEW ? " few" : ""}` : "";
    const many = block.columns.length > 6 ? " many" : "";
    return make("div", { class: `table${cards}${many}` },
      make("p", { class: "caption", "aria-hidden": "true" }, block.caption),
      small ? status : make("div", { class: "tools" }, search, status),
      hint, edge,
      tail);
  }

  // Choices ------------------------------------------------------------------------------------
  function swatch(index) {
    const space = "http://www.w3.org/2000/svg";
    const [svg, line] = [document.createElementNS(space, "svg"), document.createElementNS(space, "line")];
    for (const [key, value] of Object.entries({ width: 22, height: 8, "aria-hidden": "true" })) svg.setAttribute(key, value);
    const paint = () => {
      const [colour, dash] = report.style(index);
      const known = { x1: 0, x2: 22, y1: 4, y2: 4, stroke: colour, "stroke-width": 3, "stroke-dasharray": { solid: "none", dash: "6 3", dot: "2 2", dashdot: "6 2 2 2" }[dash] };
      for (const [key, value] of Object.entries(known)) line.setAttribute(key, value);
    };
    listeners.push(paint);
    requestAnimationFrame(paint);
    svg.append(line);
    return svg;
  }

  function choice(block) {
    const ticked = new Set(block.on);
    const known = (choices[block.id] = { ticked, tell: [] });
    const boxes = block.names.map((name, i) => make("input", {
      type: "checkbox", value: i, checked: ticked.has(i),
      on: { change: (event) => { ticked[event.target.checked ? "add" : "delete"](i); tell(); } },
    }));
    const labels = block.names.map((name, i) => make("label", {}, boxes[i], swatch(i), make("span", { dir: "auto" }, name)));
    const tell = () => known.tell.forEach((call) => call());
    const set = (wanted) => {
      boxes.forEach((box, i) => { box.checked = wanted.includes(i); ticked[box.checked ? "add" : "delete"](i); });
      tell();
    };
    const button = (words, wanted) => make("button", { class: "button", type: "button", on: { click: () => set(wanted()) } }, words);
    const search = block.names.length > 8 ? make("input", {
      type: "search", placeholder: `Find a ${block.noun}`, "aria-label": `Find a ${block.noun} to show`,
      on: { input: (event) => labels.forEach((label, i) => { label.hidden = !block.names[i].toLowerCase().includes(event.target.value.toLowerCase()); }) },
    }) : null;
    const every = () => block.names.map((_, i) => i);
    return make("fieldset", { class: "choice", id: `choice-${block.id}` }, make("legend", {}, `Shown ${block.noun}s`),
      make("div", { class: "tools" }, search, button("All", every), button("None", () => []), button("Reset", () => block.on)),
      make("div", { class: "boxes" }, labels));
  }

  // Other blocks -------------------------------------------------------------------------------
  function copy(text, button) {
    const said = (words) => { button.textContent = words; setTimeout(() => { button.textContent = "Copy"; }, 2000); };
    const byHand = () => {
      const area = make("textarea", { readonly: true });
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      said(done ? "Copied" : "Select and press Ctrl+C");
    };
    if (navigator.clipboard) navigator.clipboard.writeText(text).then(() => said("Copied"), byHand);
    else byHand();
  }

  function code(block) {
    const button = make("button", { class: "button", type: "button", "aria-live": "polite", on: { click: () => copy(block.text, button) } }, "Copy");
    return make("div", { class: "code" }, make("div", { class: "bar" }, make("span", {}, block.label), button),
      make("pre", { tabindex: "0" }, make("code", {}, block.text)));
  }

  function chart(block) {
    const words = `${block.title}. ${block.summary}`;
    const plot = make("div", { class: "plot", id: `chart-${block.id}`, role: "img", "aria-label": words });
    charts.push({ block, plot, words });
    return make("figure", {}, make("h3", {}, block.title), plot, make("figcaption", {}, block.caption));
  }

  const MAKERS = {
    text: (block) => block.paragraphs.map((words) => make("p", {}, words)),
    note: (block) => make("p", { class: "note" }, block.text),
    list: (block) => make("ul", { class: "plain" }, block.items.map((words) => make("li", {}, words))),
    facts: (block) => make("dl", { class: "facts" }, block.items.map(([term, words]) => [make("dt", { dir: "auto" }, term), make("dd", { dir: "auto" }, words)])),
    fold: (block) => make("details", { class: "fold" }, make("summary", {}, block.title), build(block.blocks)),
    code, table, choice, chart,
  };
  const build = (blocks) => blocks.flatMap((block) => MAKERS[block.is](block)).flat(3);

  // Light and dark -----------------------------------------------------------------------------
  const KEY = "counterpoise-theme";
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem(KEY); } catch { return null; } };
  const store = (theme) => { try { localStorage.setItem(KEY, theme); } catch { /* for this page alone then */ } };
  const toggle = make("button", { class: "button", type: "button", id: "theme", on: { click: () => {
    const theme = root.dataset.theme === "dark" ? "light" : "dark";
    store(theme);
    wear(theme);
  } } });
  function wear(theme) {
    root.dataset.theme = theme;
    toggle.textContent = theme === "dark" ? "☀ Light" : "☾ Dark";
    toggle.setAttribute("aria-label", theme === "dark" ? "Light colours" : "Dark colours");
    listeners.forEach((call) => call());
  }
  dark.addEventListener("change", () => { if (!stored()) wear(dark.matches ? "dark" : "light"); });

  function show() {
    wear(stored() || (dark.matches ? "dark" : "light"));
    document.querySelector("header .bar").append(toggle);
    for (const part of page.sections) document.getElementById(part.id).append(...build(part.blocks));
    requestAnimationFrame(() => { if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView(); });
  }

  return { page, charts, choices, listeners, number, share, interval, show, root };
})();

// Colour and dash of a curve, in the current theme.
report.colour = (name) => getComputedStyle(report.root).getPropertyValue(`--${name}`).trim();
report.style = (index) => {
  const colours = report.colour("series").split(/\s+/);
  return [colours[index % colours.length], ["solid", "dash", "dot", "dashdot"][Math.floor(index / colours.length) % 4]];
};
report.show();
