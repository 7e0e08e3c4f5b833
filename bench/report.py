"""What a benchmark says: one line a figure, with its target and whether it was met."""

import sys
from dataclasses import dataclass, field


@dataclass
class Report:
    """Collects and prints figures as they come."""

    missed: list[str] = field(default_factory=list)

    def figure(self, name: str, value: float, unit: str = "", note: str = "") -> None:
        """A figure without a target."""
        self._print(name, value, unit, "", note)

    def at_least(self, name: str, value: float, target: float, unit: str = "x", note: str = "") -> None:
        """A figure that must not be below its target."""
        self._judge(name, value, unit, value >= target, f">= {target:g} {unit}", note)

    def at_most(self, name: str, value: float, target: float, unit: str = "x", note: str = "") -> None:
        """A figure that must not be above its target."""
        self._judge(name, value, unit, value <= target, f"<= {target:g} {unit}", note)

    def _judge(self, name: str, value: float, unit: str, met: bool, target: str, note: str) -> None:
        if not met:
            self.missed.append(name)
        self._print(name, value, unit, f"target {target}: {'met' if met else 'MISSED'}", note)

    def _print(self, name: str, value: float, unit: str, verdict: str, note: str) -> None:
        line = f"{name:<64} {value:>12,.2f} {unit:<6} {verdict}"
        sys.stdout.write(f"{line.rstrip()}{f'  ({note})' if note else ''}\n")
        sys.stdout.flush()
