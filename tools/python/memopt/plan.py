# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the compiler knows of a step before it runs, for programs, people and notebooks."""

from __future__ import annotations

import copy
import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

__all__ = ["Estimate", "Frontier", "FrontierPoint", "Plan"]


def format_bytes(count: float) -> str:
    """12.3 MiB."""
    for unit in ("bytes", "KiB", "MiB"):
        if abs(count) < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"


def _make_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    cells = ["".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) for row in rows]
    return ("<table><tr>" + "".join(f"<th>{html.escape(name)}</th>" for name in head) + "</tr>"
            + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>")


def _count_state(manifest: Mapping) -> int:
    """Bytes of device memory at whose end the state lies that programs share."""
    return max((variable["offset"] + variable["bytes"] for variable in manifest["variables"]
                if variable["placement"] == "device" and not variable.get("own")
                and variable["role"] not in ("hyperparameter", "gradient", "index_fault")), default=0)


class Plan:
    """The plan of a compiled step, exact to the byte. `translate` puts the program's names into the model's."""

    def __init__(self, manifest: Mapping, report: Mapping, translate: Callable[[str], str] = str):
        self.manifest, self.report, self._translate = manifest, report, translate
        #: {"device": N, "host": N, "disk": N}: what the step uses of each space.
        self.peak_bytes: dict[str, int] = dict(manifest["predicted_peak_bytes"])
        #: What no layout of this order could do with.
        self.lower_bound_bytes: dict[str, int] = dict(report["lower_bound_bytes"])
        #: (bytes, what) of the largest values alive at the peak.
        self.largest: list[tuple[int, str]] = [(entry["bytes"], translate(entry["what"]))
                                                  for entry in report["largest_at_peak"]]
        #: Bytes at the peak by kind: parameter, activation, workspace, ...; "variables" are those that all programs share.
        self.bytes_by_kind: dict[str, int] = {**report["peak_bytes_by_kind"], "variables": _count_state(manifest)}
        #: (instruction, module) of what runs a second time to save memory.
        self.recomputed: list[tuple[str, str]] = [(entry["name"], translate(entry.get("module", "")))
                                                  for entry in manifest["instructions"] if entry.get("clone")]
        #: Of a step, by the machine's profile: to be held against other plans.
        self.predicted_seconds: float = report["predicted_seconds"]

    @classmethod
    def join(cls, plans: Sequence[Plan]) -> Plan:
        """The largest plan of several programs in one arena, with the peak of all."""
        joined = copy.copy(max(plans, key=lambda plan: plan.peak_bytes["device"]))
        joined.peak_bytes = {space: max(plan.peak_bytes.get(space, 0) for plan in plans) for space in joined.peak_bytes}
        return joined

    def get_timeline(self, space: str = "device") -> list[int]:
        """Bytes alive in a space while each instruction runs, in their order."""
        return [entry.get("live_bytes", {}).get(space, 0) for entry in self.manifest["instructions"]]

    def __str__(self) -> str:
        return self._translate(self.manifest.get("plan", {}).get("text", ""))

    def __repr__(self) -> str:
        spaces = ", ".join(f"{format_bytes(count)} of {space}" for space, count in self.peak_bytes.items() if count)
        return f"<memopt.Plan: {spaces or 'no memory'}, {len(self.recomputed)} instructions run again>"

    def _repr_html_(self) -> str:
        charts = "".join(_draw_timeline(f"{space}: {format_bytes(count)} ({count} bytes)", self.get_timeline(space), count)
                         for space, count in self.peak_bytes.items() if count)
        rows = [(format_bytes(count), what) for count, what in self.largest]
        return charts + _make_table(("bytes", "largest at the peak"), rows)


def _draw_timeline(title: str, live: Sequence[int], peak: int, width: int = 720, height: int = 160) -> str:
    """Bytes over instructions as SVG; instructions that end up in one column are drawn as their largest."""
    columns = min(len(live), width) or 1
    chunks = [live[i * len(live) // columns:max((i + 1) * len(live) // columns, i * len(live) // columns + 1)]
              for i in range(columns)]
    heights = [height * max(chunk, default=0) / max(peak, 1) for chunk in chunks]
    step = width / columns
    points = " ".join(f"{i * step:.1f},{height - top:.1f} {(i + 1) * step:.1f},{height - top:.1f}"
                      for i, top in enumerate(heights))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -20 {width} {height + 40}" width="{width}" '
            f'font-family="sans-serif" font-size="12"><rect y="-20" width="{width}" height="{height + 40}" fill="white"/>'
            f'<text y="-6">{html.escape(title)}</text>'
            f'<polygon points="0,{height} {points} {width},{height}" fill="#4878a8"/>'
            f'<line x2="{width}" stroke="#b03030"/><line y1="{height}" x2="{width}" y2="{height}" stroke="black"/>'
            f'<text y="{height + 16}">{len(live)} instructions of a step, in their order; red: the arena</text></svg>')


class FrontierPoint(NamedTuple):
    bytes: int
    seconds: float  #: of a step, predicted
    recomputed: int  #: instructions
    overhead: float  #: seconds over those of the fastest plan, less 1


class Frontier(Sequence):
    """Predicted step time against bytes: plans of which none is better in both, the smallest first."""

    def __init__(self, document: Mapping, text: str, svg: str):
        self._points = [FrontierPoint(point["bytes"], point["seconds"], point["recomputed"], point["overhead"])
                        for point in document["points"]]
        self._text, self._svg = text, svg

    def __len__(self) -> int:
        return len(self._points)

    def __getitem__(self, index):
        return self._points[index]

    def __str__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        rows = [(format_bytes(p.bytes), f"{p.seconds * 1e3:.3f}", f"{p.overhead:+.1%}", p.recomputed) for p in self._points]
        return self._svg + _make_table(("bytes", "ms predicted", "overhead", "recomputed"), rows)


class Estimate(Mapping):
    """Model state and activations before anything is planned; its keys are those of memopt-compile's --estimate report
    (docs/MemoptCompile.md), its text is the table.
    """

    def __init__(self, document: Mapping, text: str):
        self._document, self._text = document, text

    def __getitem__(self, key: str):
        return self._document[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._document)

    def __len__(self) -> int:
        return len(self._document)

    def __str__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self._text)}</pre>"
