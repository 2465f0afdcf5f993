"use strict";
// Draws the figures that the page has made room for, when they come near.
(() => {
  const { number, share, interval, colour, style, choices } = report;
  const NARROW = 560; // pixels, below which labels are cut shorter

  // Plotly reads tags and entities in its texts; names are to be shown as they are.
  const safe = (words) => String(words).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const short = (words, most) => safe([...words].length > most ? `${[...words].slice(0, most - 1).join("")}…` : words);
  const lines = (...parts) => parts.filter(Boolean).join("<br>");
  // A title in lines that fit into so many pixels.
  function wrapped(words, width) {
    const most = Math.max(20, Math.floor(width / 7));
    const out = [""];
    for (const word of words.split(" ")) {
      if (out.at(-1) && out.at(-1).length + word.length >= most) out.push(word);
      else out[out.length - 1] += (out.at(-1) && " ") + word;
    }
    return out.map((line) => short(line, 2 * most)).join("<br>");
  }

  function layout(width, height, more) {
    const axis = { gridcolor: colour("grid"), zerolinecolor: colour("line"), linecolor: colour("line"), tickcolor: colour("line"), automargin: true, separatethousands: true, minexponent: 6 };
    const { xaxis, yaxis, ...rest } = more;
    return {
      width, height, autosize: false, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: colour("face"), size: 12.5, color: colour("text") },
      margin: { l: 12, r: 14, t: more.showlegend === false ? 12 : 34, b: 40 }, dragmode: matchMedia("(pointer: fine)").matches ? "zoom" : false,
      hoverlabel: { bgcolor: colour("back"), bordercolor: colour("plain"), font: { color: colour("text"), size: 12.5 }, align: "left", namelength: -1 },
      // Side by side, entries would wrap now and then while the margins are found.
      legend: { orientation: width < NARROW ? "v" : "h", x: 0, y: 1, xanchor: "left", yanchor: "bottom", font: { color: colour("text") } },
      xaxis: { ...axis, ...xaxis, title: { text: wrapped(xaxis.title, width - 90), standoff: 10 } },
      yaxis: { ...axis, ...yaxis, title: { text: yaxis.title ? wrapped(yaxis.title, height - 110) : undefined, standoff: 12 } },
      ...rest,
    };
  }

  // One row for every name; the hardest on top.
  function rowAxis(names, width) {
    const most = width < NARROW ? 14 : 30;
    return { tickmode: "array", tickvals: names.map((_, i) => i), ticktext: names.map((name) => short(name, most)),
      range: [names.length - 0.4, -0.6], showgrid: false, zeroline: false, fixedrange: true, ticks: "" };
  }
  const rowHeight = (names, each) => 96 + names.length * (names.length < 6 ? 1.4 * each : each);

  // Two values with intervals in every row, before and after.
  function rows(block, width) {
    const { names, series, log } = block;
    const offset = series.some((one) => one.high) ? 0.17 : 0;
    const data = [];
    if (!offset && series.length === 2) {
      const [a, b] = series;
      data.push({ type: "scatter", mode: "lines", hoverinfo: "skip", showlegend: false, line: { color: colour("line"), width: 3 },
        x: names.flatMap((_, i) => [a.values[i], b.values[i], null]), y: names.flatMap((_, i) => [i, i, null]) });
    }
    series.forEach((one, s) => {
      const bars = one.high ? { error_x: { type: "data", symmetric: false, color: colour(one.colour), thickness: 1.6, width: 3,
        array: one.high.map((high, i) => (high === null ? 0 : high - one.values[i])),
        arrayminus: one.low.map((low, i) => (low === null ? 0 : one.values[i] - (log ? Math.max(low, block.floor) : low))) } } : {};
      data.push({ type: "scatter", mode: "markers", name: safe(one.name), x: one.values, y: names.map((_, i) => i + (2 * s - 1) * offset),
        marker: { color: colour(one.colour), size: 9, symbol: s ? "circle" : "diamond" }, hoverinfo: "text", ...bars,
        hovertext: names.map((name, i) => {
          const as = block.percent ? share : number;
          const [middle, bounds] = one.high ? interval([one.values[i], one.low[i], one.high[i]], as) : [as(one.values[i]), ""];
          return lines(safe(name), `${safe(one.name)}: ${middle} ${bounds}`, block.remarks ? safe(block.remarks[i]) : "");
        }) });
    });
    return { data, layout: layout(width, rowHeight(names, offset ? 30 : 26), {
      xaxis: { title: block.x, type: log ? "log" : "linear", range: block.range ? (log ? block.range.map(Math.log10) : block.range) : undefined, rangemode: log ? "normal" : "tozero", zeroline: !log, tickformat: block.percent ? ".0%" : undefined },
      yaxis: rowAxis(names, width), hovermode: "closest" }) };
  }

  // Quantiles of every row as a box with whiskers, before and after.
  function boxes(block, width) {
    const { names, series } = block;
    const data = series.flatMap((one, s) => {
      const at = names.map((_, i) => i + (2 * s - 1) * 0.19);
      const level = (k) => one.quantiles.map((row) => row[k]);
      const box = { type: "box", orientation: "h", name: safe(one.name), y: at, q1: level(1), median: level(2), q3: level(3), lowerfence: level(0), upperfence: level(4),
        width: 0.3, whiskerwidth: 0.5, line: { color: colour(one.colour), width: 1.5 }, hoverinfo: "skip" };
      const marks = { type: "scatter", mode: "markers", x: level(2), y: at, marker: { opacity: 0, size: 14 }, showlegend: false, hoverinfo: "text",
        hovertext: names.map((name, i) => lines(safe(name), safe(one.name), ...block.levels.map((l, k) => `${share(l)} quantile: ${number(one.quantiles[i][k])}`))) };
      return [box, marks];
    });
    return { data, layout: layout(width, rowHeight(names, 32), {
      xaxis: { title: block.x, zeroline: true }, yaxis: rowAxis(names, width), hovermode: "closest", boxmode: "overlay" }) };
  }

  // Lines; those with a number of the choice are shown when it is ticked.
  function curves(block, width) {
    const ticked = block.choice ? choices[block.choice].ticked : null;
    const kept = block.series.filter((one) => one.pick === undefined || ticked.has(one.pick));
    const value = block.percent ? share : number;
    const few = block.whole && Math.max(0, ...kept.map((one) => one.x.at(-1))) <= 12; // no tick between numbers
    const data = kept.flatMap((one) => {
      const [paint, dash] = one.colour ? [colour(one.colour), one.dash || "solid"] : style(one.pick);
      const line = { type: "scatter", mode: one.x.length < 30 ? "lines+markers" : "lines", name: safe(one.name), x: one.x, y: one.y, connectgaps: true,
        line: { color: paint, dash: one.dash || dash, width: 2, shape: one.shape || "linear" }, marker: { size: 5 }, hoverinfo: "text",
        hovertext: one.y.map((y, i) => lines(safe(one.name), `${value(y)} at ${safe(block.x)} ${(block.shares ? share : number)(one.x[i])}`)) };
      if (!one.low) return [line];
      const band = { type: "scatter", mode: "lines", x: [...one.x, ...[...one.x].reverse()], y: [...one.high, ...[...one.low].reverse()],
        fill: "toself", fillcolor: paint, opacity: 0.15, line: { width: 0 }, hoverinfo: "skip", showlegend: false };
      return [band, line];
    });
    return { data, layout: layout(width, width < NARROW ? 300 : 360, {
      xaxis: { title: block.x, type: block.logx ? "log" : "linear", zeroline: false, dtick: few || block.logx ? 1 : undefined, tickformat: block.fine ? undefined : block.logx ? ",d" : block.shares ? ".0%" : undefined, range: block.shares ? [-0.02, 1.02] : undefined },
      yaxis: { title: block.y, type: block.logy ? "log" : "linear", tickformat: block.percent ? ".0%" : undefined, zeroline: false, rangemode: block.percent ? "tozero" : "normal" },
      showlegend: !block.choice && block.series.length > 1, hovermode: "closest" }) };
  }

  // Average against worst, a line for every family, a ring around what was chosen.
  function frontier(block, width) {
    const data = block.families.map((family, i) => {
      const average = family.name === "average";
      const [paint, dash] = average ? [colour("plain"), "solid"] : style(i);
      return { type: "scatter", mode: average ? "markers" : "lines+markers", name: average ? "plain average" : safe(family.name), x: family.average, y: family.worst,
        line: { color: paint, dash, width: 1.6 }, marker: { color: paint, size: average ? 12 : 7, symbol: average ? "square" : "circle" }, hoverinfo: "text",
        hovertext: family.nu.map((nu, k) => lines(safe(family.name), `nu = ${nu === null ? "∞" : number(nu)}`, `all rows ${number(family.average[k])}`, `worst group ${number(family.worst[k])} ± ${number(family.error[k])}`)) };
    });
    const { chosen } = block;
    data.push({ type: "scatter", mode: "markers", name: "chosen", x: [chosen.average], y: [chosen.worst], hoverinfo: "skip",
      error_y: { type: "data", array: [chosen.error], color: colour("soft"), thickness: 1.4 },
      marker: { symbol: "circle-open", size: 19, color: colour("bad"), line: { width: 2.5 } } });
    return { data, layout: layout(width, width < NARROW ? 340 : 420, {
      xaxis: { title: block.x, zeroline: false }, yaxis: { title: block.y, type: block.log ? "log" : "linear", zeroline: false }, hovermode: "closest" }) };
  }

  const KINDS = { rows, boxes, curves, frontier };
  const CONFIG = { displaylogo: false, typesetMath: false, showTips: false, doubleClick: "reset",
    displayModeBar: matchMedia("(pointer: fine)").matches ? "hover" : false,
    // These alone: another button of the library would upload the chart.
    modeBarButtons: [["toImage", "resetScale2d"]], plotlyServerURL: "" };
  const drawn = new Set();

  function draw(one, width) {
    drawn.add(one);
    one.plot.style.minHeight = "";
    const figure = KINDS[one.block.kind](one.block, width || one.plot.clientWidth);
    if (figure.layout.legend.orientation === "v" && figure.layout.showlegend !== false) {
      figure.layout.height += 19 * (figure.data.filter((trace) => trace.showlegend !== false).length - 1);
    }
    return Plotly.react(one.plot, figure.data, figure.layout, CONFIG).then(() => describe(one));
  }
  // The picture has the description, not what is around it, where the buttons of the chart are.
  function describe({ plot, words }) {
    const [picture, ...layers] = plot.querySelectorAll("svg.main-svg");
    picture.setAttribute("role", "img");
    picture.setAttribute("aria-label", words);
    layers.forEach((layer) => layer.setAttribute("aria-hidden", "true"));
    plot.removeAttribute("role");
    plot.removeAttribute("aria-label");
  }
  // Those in a fold that is closed have no width; they are drawn again when it opens.
  const again = (width) => drawn.forEach((one) => { if (width || one.plot.checkVisibility()) draw(one, width); });
  document.querySelectorAll("details.fold").forEach((fold) => fold.addEventListener("toggle", () => {
    drawn.forEach((one) => { if (fold.open && fold.contains(one.plot)) draw(one); });
  }));

  const near = new IntersectionObserver((entries) => entries.forEach((entry) => {
    const one = report.charts.find(({ plot }) => plot === entry.target);
    if (entry.isIntersecting && !drawn.has(one) && one.plot.clientWidth) { near.unobserve(one.plot); draw(one); }
  }), { rootMargin: "600px 0px" });
  report.charts.forEach((one) => {
    near.observe(one.plot);
    // Room is kept, so that the page does not jump when they are drawn.
    one.plot.style.minHeight = `${one.block.names ? rowHeight(one.block.names, 30) : 360}px`;
    if (one.block.choice) choices[one.block.choice].tell.push(() => { if (drawn.has(one)) draw(one); });
  });
  let printing = false;
  report.listeners.push(() => { if (!printing) again(); });

  let width = innerWidth;
  let waiting = 0;
  addEventListener("resize", () => {
    if (innerWidth === width) return; // a phone's address bar came or went
    width = innerWidth;
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => again());
  });

  // On paper: all charts, in light colours, as wide as a page.
  const PAPER = 660;
  let worn = null;
  function dress(theme) {
    report.root.dataset.theme = theme;
    report.listeners.forEach((call) => call());
  }
  addEventListener("beforeprint", () => {
    worn = worn || report.root.dataset.theme;
    printing = true;
    dress("light");
    report.charts.forEach((one) => draw(one, PAPER));
  });
  addEventListener("afterprint", () => {
    printing = false;
    if (worn) dress(worn);
    worn = null;
  });
})();
