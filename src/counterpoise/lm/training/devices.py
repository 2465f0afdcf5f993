"""Devices that runs are estimated for: cards by their data sheets, and this CPU."""

from __future__ import annotations

from dataclasses import dataclass

from counterpoise.common.machine import memory

GB = 10**9


@dataclass(frozen=True)
class Device:
    """The device of one rank.

    Attributes
    ----------
    name : str
    memory : float or None
        Bytes; None if unknown.
    bf16, float32 : float or None
        Peak operations per second on dense matrices; None if no data sheet states them.
    utilisation : float
        Share of the peak that training is assumed to reach.
    shared : bool
        Whether all ranks share the memory.
    """

    name: str
    memory: float | None
    bf16: float | None = None
    float32: float | None = None
    utilisation: float = 0.4
    shared: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.utilisation <= 1:
            raise ValueError(f"utilisation must be above 0, at most 1; got {self.utilisation!r}")

    def rate(self, precision: str) -> float | None:
        """Operations per second that training is assumed to reach."""
        best = self.bf16 if precision == "bf16" else self.float32
        return None if best is None else best * self.utilisation


# NVIDIA's data sheets of A100 and H100 (SXM), without sparsity; float32 without TF32.
DEVICES = {
    device.name: device
    for device in (
        Device("a100-80gb", 80 * GB, 312e12, 19.5e12),
        Device("a100-40gb", 40 * GB, 312e12, 19.5e12),
        Device("h100-80gb", 80 * GB, 989e12, 67e12),
    )
}
CPU = "cpu"


def get_device(device: str | Device) -> Device:
    """Look up a device; ``cpu`` is this machine's, whose speed is not assumed."""
    if isinstance(device, Device):
        return device
    if device == CPU:
        return Device(CPU, memory(), shared=True)
    if device not in DEVICES:
        names = ", ".join(map(repr, (*DEVICES, CPU)))
        raise ValueError(f"device={device!r} is unknown; use one of {names}, or a Device")
    return DEVICES[device]
