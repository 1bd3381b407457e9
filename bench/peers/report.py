"""Medians, ratios and the Markdown table of a run's measurements."""

import pathlib
import statistics

FORMATS = ("bf16", "8-bit", "4-bit", "mxfp4")
CHAPTER = """## Beside other engines: {shape}

`python3 bench/peers/run.py --work DIR --shape {shape} --write-docs`: the engines take turns in every round; medians, and half the spread between
rounds. What each cell counts: [bench/peers](../bench/peers/README.md).
"""


def cell_title(name: str) -> str:
    kind, number = name.split("-")
    return {
        "prefill": f"prefill of {int(number):,} tokens",
        "decode": "decode, 1 stream" if number == "1" else f"decode, {number} streams",
        "depth": f"decode after {int(number):,} tokens",
        "server": f"server, {number} clients",
        "turn": f"second turn of a chat, after {int(number):,} tokens",
        "beside": f"server, {number} clients, while a prompt of 16,384 tokens comes",
    }[kind]


def place(row: tuple[str, str]) -> tuple:
    """Sorts (format, cell) by format, kind and number."""
    kind, number = row[1].split("-")
    return FORMATS.index(row[0]), ("prefill", "decode", "depth", "turn", "server", "beside").index(kind), int(number)


def figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


class Sample:
    """All rounds of one engine in one cell."""

    def __init__(self, runs: list[dict]):
        rates = [run["rate"] for run in runs]
        self.rounds, self.rate = len(rates), statistics.median(rates)
        self.spread = (max(rates) - min(rates)) / 2 / self.rate
        self.waits = [self.median_seconds(runs, key) for key in ("ttft_ms", "long_ms")]

    @staticmethod
    def median_seconds(runs: list[dict], key: str) -> float | None:
        found = [run[key] for run in runs if key in run]
        return statistics.median(found) / 1e3 if found else None

    def text(self) -> str:
        text = figure(self.rate) + (f" ±{self.spread:.0%}" if self.rounds > 1 else "")
        return ", ".join([text, *(f"{wait:.2f} s" for wait in self.waits if wait is not None)])


def samples(runs: list[dict]) -> dict[tuple[str, str, str], Sample]:
    """(format, cell, engine) -> Sample; failed runs are left out."""
    groups: dict[tuple, list] = {}
    for run in runs:
        if "rate" in run:
            groups.setdefault((run["format"], run["cell"], run["engine"]), []).append(run)
    return {key: Sample(group) for key, group in groups.items()}


def table(data: dict) -> str:
    """The section for docs/benchmarks.md, without its markers."""
    found = samples(data["runs"])
    engines = [name for name in data["engines"] if any(key[2] == name for key in found)]
    own = [name for name in engines if name.startswith("Quire")]
    peers = [name for name in engines if name not in own]
    probes = [run["probe_gbs"] for run in data["runs"] if run.get("probe_gbs")]
    lines = [
        f"{data['model']}. {data['cpu']}, {data['threads']} threads for every engine; {data['date']}. "
        + "; ".join(dict.fromkeys(data["versions"].values()))
        + f". Memory read {min(probes):.0f} to {max(probes):.0f} GB/s, median "
        + f"{statistics.median(probes):.0f}, probed before each round."
        if probes
        else data["cpu"],
        "",
        "| format | | " + " | ".join(engines) + f" | {'; '.join(own)} / best peer |",
        "|---|---|" + "---|" * (len(engines) + 1),
    ]
    # Runs are in the order they were made, which after --resume is not the table's.
    rows = {(run["format"], run["cell"]) for run in data["runs"]}
    for format, cell in sorted(rows, key=place):
        here = {name: found.get((format, cell, name)) for name in engines}
        if not any(here.values()):
            continue
        best = max((here[name].rate for name in peers if here[name]), default=None)
        ratio = "; ".join(f"**{here[name].rate / best:.2f}**" for name in own if best and here[name])
        texts = [here[name].text() if here[name] else "" for name in engines]
        lines.append(f"| {format} | {cell_title(cell)} | " + " | ".join(texts) + f" | {ratio} |")
    return "\n".join(lines) + "\n"


def markers(shape: str) -> tuple[str, str]:
    """Around a shape's section."""
    return f"<!-- peers:{shape}:begin -->", f"<!-- peers:{shape}:end -->"


def write_docs(path: pathlib.Path, shape: str, section: str) -> None:
    """Replaces what is between the markers of `path`; without markers, appends a chapter."""
    begin, end = markers(shape)
    text, block = path.read_text(), f"{begin}\n{section}{end}"
    counts = text.count(begin), text.count(end)
    if counts == (0, 0):
        path.write_text(f"{text.rstrip()}\n\n{CHAPTER.format(shape=shape)}\n{block}\n")
    elif counts == (1, 1) and text.index(begin) < text.index(end):
        head, rest = text.split(begin)
        path.write_text(head + block + rest.split(end)[1])
    else:
        raise SystemExit(f"{path}: needs one {begin} and, after it, one {end}")
