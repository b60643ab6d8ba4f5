"""Prices of Linux instances by region, type and market: dated data, read by the modules of domain/cost only.

USD per hour. On-demand is the list price. Spot prices change by the hour; their column is a long-run average.
"""

from __future__ import annotations

DATED = "2025-11"
"""Month of the prices. `node-fleet cost` prints it, since the bill of another month differs."""

_COLUMN = {"ap-southeast-1": 0, "ap-south-1": 1, "eu-central-1": 2, "eu-west-1": 3, "us-east-1": 4, "us-west-2": 4}
_PRICES = {
    # type: (on-demand, Spot) in each column of regions
    "t2.small": ((0.0292, 0.0088), (0.0248, 0.0074), (0.0268, 0.0080), (0.0250, 0.0075), (0.0230, 0.0069)),
    "t3.micro": ((0.0132, 0.0044), (0.0112, 0.0039), (0.0120, 0.0042), (0.0114, 0.0038), (0.0104, 0.0034)),
    "t3.small": ((0.0264, 0.0087), (0.0224, 0.0078), (0.0240, 0.0084), (0.0228, 0.0075), (0.0208, 0.0069)),
    "t3.medium": ((0.0528, 0.0174), (0.0448, 0.0157), (0.0480, 0.0168), (0.0456, 0.0150), (0.0416, 0.0137)),
    "t3.large": ((0.1056, 0.0348), (0.0896, 0.0314), (0.0960, 0.0336), (0.0912, 0.0301), (0.0832, 0.0275)),
    "t3a.small": ((0.0236, 0.0083), (0.0123, 0.0049), (0.0216, 0.0076), (0.0204, 0.0071), (0.0188, 0.0066)),
    "t3a.medium": ((0.0472, 0.0165), (0.0246, 0.0098), (0.0432, 0.0151), (0.0408, 0.0143), (0.0376, 0.0132)),
    "t4g.small": ((0.0212, 0.0076), (0.0112, 0.0045), (0.0192, 0.0069), (0.0184, 0.0066), (0.0168, 0.0060)),
    "t4g.medium": ((0.0424, 0.0153), (0.0224, 0.0090), (0.0384, 0.0138), (0.0368, 0.0132), (0.0336, 0.0121)),
    "m5.large": ((0.1200, 0.0456), (0.1010, 0.0394), (0.1150, 0.0449), (0.1070, 0.0417), (0.0960, 0.0374)),
    "m6i.large": ((0.1200, 0.0444), (0.1010, 0.0384), (0.1150, 0.0437), (0.1070, 0.0407), (0.0960, 0.0365)),
    "c5.large": ((0.0980, 0.0392), (0.0850, 0.0340), (0.0970, 0.0388), (0.0960, 0.0384), (0.0850, 0.0340)),
    "c6i.large": ((0.0980, 0.0382), (0.0850, 0.0332), (0.0970, 0.0378), (0.0960, 0.0374), (0.0850, 0.0332)),
}

USD_PER_HOUR: dict[tuple[str, str, str], float] = {
    (region, instance_type, market): price
    for region, column in _COLUMN.items()
    for instance_type, pairs in _PRICES.items()
    for market, price in zip(("on-demand", "spot"), pairs[column], strict=True)
}
"""(region, instance type, market) -> USD per hour."""
