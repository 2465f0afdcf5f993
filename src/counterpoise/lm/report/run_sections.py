"""Sections of the page about a training run."""

from __future__ import annotations

import json
import shlex
from typing import Any

import numpy as np

from counterpoise.common.text import count, figure, listed
from counterpoise.common.toml import read_toml
from counterpoise.lm.logs import JsonlLog
from counterpoise.lm.report.track import Track
from counterpoise.lm.training.run_folder import CONFIG, ENVIRONMENT, INPUTS, RunFolder
from counterpoise.report import blocks as b
from counterpoise.report.blocks import Block
from counterpoise.report.curves import CURVES, SHOWN, curve, foremost, thinned
from counterpoise.report.words import setting, settings

Array = np.ndarray

# Domains that a chart with one row for each has room for.
ROWS = 60
UNIT = "nats per token"


def loss_section(track: Track, folder: RunFolder) -> Block:
    """Losses by domain: first, last and in between."""
    order = np.argsort(-track.losses[-1], kind="stable")
    at = order[:ROWS].tolist()
    picked, kept = _kept(track)
    names = [track.domains[i] for i in kept]
    few = (
        "" if len(kept) == len(track.domains) else f" {len(kept)} of {len(track.domains)} domains."
    )
    rows = [
        [track.domains[i], track.losses[0, i], track.losses[-1, i], track.driving[-1, i],
         track.weights[-1, i], track.shares[-1, i], track.epochs[-1, i]]
        for i in order
    ]  # fmt: skip
    excess = _excess(folder)
    columns = [("Domain", "text"), ("Loss, first", "number"), ("Loss, last", "number")]
    columns += [("Steering loss, last", "number"), ("Weight, last", "share")]
    columns += [("Share of tokens", "share"), ("Epochs", "number")]
    if excess:
        columns += [("Reference loss", "number"), ("Excess, last", "number")]
        rows = [[*row, *excess.get(row[0], (None, None))] for row in rows]
    return b.section(
        "losses",
        "Losses by domain",
        b.chart(
            "losses", "rows", "Loss of each domain, first and last",
            f"The largest goes from {figure(track.worst[0])} to {figure(track.worst[-1])}.",
            f"Held-out loss in {UNIT}, lower is better; the domain that ends worst is on top.",
            names=[track.domains[i] for i in at],
            series=[
                {"name": "first", "colour": "plain", "values": track.losses[0, at]},
                {"name": "last", "colour": "ours", "values": track.losses[-1, at]},
            ],
            x=f"loss, {UNIT}", log=False, floor=0.0, range=_span(track.losses[[0, -1]][:, at]),
            remarks=[f"weight {track.weights[-1, i]:.3g}" for i in at],
        ),
        b.choice("domains", "domain", names, picked),
        b.chart(
            "loss-curves", "curves", "Losses during training",
            f"{count(len(track.domains), 'domain')}, {count(len(track.tokens), 'evaluation')}.",
            f"Held-out loss in {UNIT}, by tokens read.{few}{thinned(len(track.tokens))}",
            x="tokens", y=f"loss, {UNIT}", choice="domains",
            series=_curves(track, kept, track.losses),
        ),
        b.table("loss-table", f"All domains; losses in {UNIT}.", columns, rows, search=True),
    )  # fmt: skip


def mixture_section(track: Track, folder: RunFolder) -> Block:
    """Weights, and the shares of tokens that were read."""
    _, kept = _kept(track)
    top = [track.domains[i] for i in np.argsort(-track.weights[-1], kind="stable")]
    read = [f"{track.domains[i]} {track.shares[-1, i]:.1%}" for i in kept]
    common: dict[str, Any] = {"x": "tokens", "percent": True, "choice": "domains"}
    words = (
        "Weights are what the rule asks for after each evaluation. Shares are the part of all "
        "tokens so far that came from each domain"
    )
    if folder.settings.reweight.weigh == "loss":
        words += ". In this run weights multiply losses and do not change what is read."
    else:
        gap = float(np.max(np.abs(track.shares[-1] - track.targets[-1])))
        words += "; they follow the mean of the weights over training"
        words += f", within {gap:.2%}." if np.isfinite(gap) else "."
    return b.section(
        "mixture",
        "Weights and shares of tokens",
        b.text(words),
        b.chart(
            "weights", "curves", "Weights",
            f"At the end, {listed(top, most=3)} have the most weight.",
            "Choose domains above, under the losses.",
            y="weight", series=_curves(track, kept, track.weights), **common,
        ),
        b.chart(
            "shares", "curves", "Shares of tokens read",
            f"At the end: {listed(read)}.",
            "Share of all training tokens so far.",
            y="share", series=_curves(track, kept, track.shares), **common,
        ),
    )  # fmt: skip


def certificate_section(folder: RunFolder) -> Block | None:
    """What is known about the weights: their regret, its bound, and the noise of the losses."""
    found = _last_update(folder).get("certificate")
    if not found:
        return None
    return b.section(
        "certificate",
        "What the weights achieved",
        b.text(*found["says"]),
        b.note(
            "Excess losses are those of the steering split, above the references if there are any. "
            "Means are over updates, each with the weights in force when its losses were measured."
        ),
    )


def training_section(folder: RunFolder) -> Block:
    """Training loss and gradient norm."""
    steps = folder.steps.read()
    title, name = "Training", "training"
    if not steps:
        return b.section(name, title, b.text("No training step yet."))
    tokens = np.array([r["tokens"] for r in steps])
    series = {key: _column(steps, key) for key in ("loss", "rate", "norm")}
    return b.section(
        name,
        title,
        b.chart(
            "training", "curves", "Training loss",
            f"From {figure(series['loss'][0])} to {figure(series['loss'][-1])}.",
            f"In {UNIT}, on the training batches. The mixture changes during training, so a lower "
            f"loss may only mean an easier mixture.{thinned(len(tokens))}",
            x="tokens", y=f"loss, {UNIT}",
            series=[curve("training loss", tokens, series["loss"], colour="ours")],
        ),
        b.chart(
            "norms", "curves", "Gradient norm",
            f"{figure(series['norm'][-1])} at the end.",
            f"Before clipping.{thinned(len(tokens))}",
            x="tokens", y="norm", series=[curve("norm", tokens, series["norm"], colour="plain")],
        ),
    )  # fmt: skip


def score_section(folder: RunFolder) -> Block:
    """Scores on downstream tasks, and losses on more sequences."""
    records = folder.scores.read()
    title, name = "Tasks", "tasks"
    rows = [
        [row["task"], record["tokens"], row["metric"], row["value"], row["stderr"], row["shots"],
         row["n"], row["split"]]
        for record in records
        for row in record.get("tasks", [])
    ]  # fmt: skip
    parts = []
    if rows:
        columns = [("Task", "text"), ("Tokens", "count"), ("Metric", "text"), ("Score", "number")]
        columns += [("Standard error", "number"), ("Shots", "count"), ("Documents", "count")]
        columns += [("Split", "text")]
        parts.append(b.table("task-table", "Scores on downstream tasks.", columns, rows))
    else:
        parts.append(
            b.text(
                "No tasks were scored. To add scores, set evaluate.tasks and run "
                "counterpoise lm evaluate on this folder."
            )
        )
    looked = [r for r in records if r.get("losses")]
    if looked:
        last = looked[-1]
        how = last["losses_of"]
        rows = [[domain, loss] for domain, loss in last["losses"].items()]
        caption = (
            f"Losses in {UNIT} after {last['tokens']:,} tokens, on "
            f"{how['sequences'] or 'all'} sequences of each domain in the split {how['split']!r}."
        )
        columns = [("Domain", "text"), ("Loss", "number")]
        parts.append(b.table("closer-table", caption, columns, rows))
    return b.section(name, title, *parts)


def setting_section(folder: RunFolder) -> Block:
    table = read_toml(folder.path / CONFIG)
    rows = list(settings(table).items())
    return b.section("settings", "Settings", b.fold("All settings of the run", b.facts(rows)))


def repeat_section(folder: RunFolder) -> Block:
    """The command that repeats the run, and the machine it ran on."""
    config = shlex.quote(str(folder.path / CONFIG))
    parts = [
        b.code(
            f"counterpoise lm train {config} --out ELSEWHERE",
            "The command that makes this run again",
        )
    ]
    items: list[tuple[str, str]] = []
    result = folder.result
    if result is not None:
        items += [
            ("Model", result["model"]),
            (
                "Time",
                f"{figure(result['seconds'])} s, {figure(result['tokens_per_second'])} tokens/s",
            ),
        ]
    items += [(name.capitalize(), setting(v)) for name, v in _json(folder, INPUTS, {}).items() if v]
    for i, start in enumerate(_json(folder, ENVIRONMENT, [])):
        packages = {k: v for k, v in start.get("packages", {}).items() if v}
        said = {
            "Command": shlex.join(start.get("command", [])),
            "Ran on": f"{start.get('system')}, {start.get('ranks', 1)} x {start.get('device')}",
            "Versions": ", ".join(f"{k} {v}" for k, v in packages.items()),
            "Python, revision": f"{start.get('python')}, {start.get('revision') or 'unknown'}",
        }
        items += [(f"{key}, start {i + 1}" if i else key, value) for key, value in said.items()]
    return b.section("repeat", "How to repeat it", *parts, b.facts(items))


def _kept(track: Track) -> tuple[list[int], list[int]]:
    """Choose which curves the page shows at first, and which it holds."""
    kept = foremost(track.weights[-1], track.losses[-1], most=CURVES)
    order = np.argsort(-track.weights[-1][kept], kind="stable")
    return order[:SHOWN].tolist(), kept


def _curves(track: Track, kept: list[int], values: Array) -> list[dict[str, Any]]:
    return [curve(track.domains[i], track.tokens, values[:, i], pick=k) for k, i in enumerate(kept)]


def _last_update(folder: RunFolder) -> dict[str, Any]:
    """The record of the last update of the weights; empty if there is none."""
    records = JsonlLog(folder.weights).read() if folder.weights.is_file() else []
    return records[-1] if records else {}


def _excess(folder: RunFolder) -> dict[str, tuple[float, float]]:
    """Reference losses and the excess over them, by domain; empty without references."""
    last = _last_update(folder).get("domains", {})
    if not any(values.get("reference") for values in last.values()):
        return {}
    return {name: (values["reference"], values["excess"]) for name, values in last.items()}


def _span(values: Array) -> list[float]:
    """Limits of an axis that need not include zero."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    room = 0.06 * (high - low) or 0.1
    return [low - room, high + room]


def _column(records: list[dict[str, Any]], key: str) -> Array:
    return np.array([np.nan if r.get(key) is None else r[key] for r in records], dtype=float)


def _json(folder: RunFolder, name: str, missing: Any) -> Any:
    file = folder.path / name
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else missing
