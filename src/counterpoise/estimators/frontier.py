"""The frontier: average risk against worst-group risk of all candidates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from counterpoise.common.packages import not_installed
from counterpoise.common.text import text_table

Array = np.ndarray


@dataclass(frozen=True)
class Frontier:
    """Held-out average and worst-group risks of all candidates; prints as a table.

    Attributes
    ----------
    family : list of str
        "average", "plain", or the options that distinguish a candidate apart from ``nu``.
    nu, average, worst, error : arrays of shape (C,)
        Strength, held-out mean risk over rows, held-out risk of the worst group and its standard
        error.
    chosen : int
        Index of the chosen candidate.
    plain : int
        Index of the plain average over rows.
    measure : str
        What a risk is: "risk" for squared errors, "log loss", "error", ...
    """

    family: list[str]
    nu: Array
    average: Array
    worst: Array
    error: Array
    chosen: int
    plain: int = 0
    measure: str = "risk"

    @classmethod
    def of(
        cls, results: dict[str, Any], chosen: int, plain: int = 0, measure: str = "risk"
    ) -> Frontier:
        """Make the frontier from ``cv_results_``."""
        return cls(
            family=list(results["family"]),
            nu=results["nu"],
            average=results["average_risk"],
            worst=results["worst_group_risk"],
            error=results["standard_error"],
            chosen=chosen,
            plain=plain,
            measure=measure,
        )

    def __len__(self) -> int:
        return len(self.nu)

    def __str__(self) -> str:
        rows = [
            [
                f"{'*' if i == self.chosen else ' '} {family}",
                *(f"{column[i]:.4g}" for column in (self.nu, self.average, self.worst)),
                f"{self.error[i]:.2g}",
            ]
            for i, family in enumerate(self.family)
        ]
        head = ["  family", "nu", "average", "worst", "+-"]
        return text_table(head, rows, least=(0, 9, 9, 9, 8)) + "\n* chosen"

    def near(self) -> Array:
        """Mark the candidates to plot: at most twice the risks of the main ones."""
        matters = [i for i, name in enumerate(self.family) if name in ("average", "plain")]
        matters += [self.chosen, self.plain]
        ends = [2.0 * float(values[matters].max()) for values in (self.average, self.worst)]
        return (self.average <= ends[0]) & (self.worst <= ends[1])

    def plot(self, ax: Any = None, path: str | Path | None = None) -> Any:
        """Plot worst-group risk against average risk, one line per family. Needs matplotlib.

        Parameters
        ----------
        ax : matplotlib axes, optional
            A new figure if None.
        path : str or path, optional
            File to save the figure to.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise not_installed("plotting needs", "matplotlib") from error
        if ax is None:
            ax = Figure(figsize=(7, 4.8), layout="constrained").subplots()
        near = self.near()
        hidden = []
        for name in dict.fromkeys(self.family):
            at = [i for i, family in enumerate(self.family) if family == name and near[i]]
            if not at:
                hidden.append(name)
                continue
            style = dict(marker="s", linestyle="none", color="black", zorder=4)
            if not name.startswith("average"):
                style = dict(marker="o", markersize=4, linewidth=1.2)
            ax.plot(self.average[at], self.worst[at], label=name, **style)
        i = self.chosen
        ax.errorbar(self.average[i], self.worst[i], yerr=self.error[i], color="0.4", capsize=3)
        ax.plot(
            self.average[i], self.worst[i], marker="o", markersize=14, fillstyle="none",
            linestyle="none", color="crimson", label="chosen",
        )  # fmt: skip
        what = f"held-out {self.measure}"
        ax.set(xlabel=f"{what}, average over rows", ylabel=f"{what}, worst group")
        low, high = float(self.worst[near].min()), float(self.worst[near].max())
        if low > 0 and high > 10 * low:
            ax.set_yscale("log")
        ax.annotate(f"nu = {self.nu[i]:.3g}", (self.average[i], self.worst[i]),
                    xytext=(10, 8), textcoords="offset points")  # fmt: skip
        few = int(np.sum(~near)) - sum(self.family.count(name) for name in hidden)
        hidden += [f"{few} more"] if few else []
        note = f"far worse, not shown: {'; '.join(hidden)}" if hidden else None
        ax.legend(frameon=False, fontsize="small", title=note, title_fontsize="x-small")
        if path is not None:
            ax.figure.savefig(path, dpi=150)
        return ax
