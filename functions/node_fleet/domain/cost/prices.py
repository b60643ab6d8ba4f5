"""Prices of Linux instances by region, type and market: dated data, read by the modules of domain/cost only.

USD per hour. On-demand is the list price. Spot prices change by the hour; their column is a long-run average.
"""

from __future__ import annotations

DATED = "2025-11"
"""Month of the prices. `node-fleet cost` prints it, since the bill of another month differs."""

_COLUMNS = {
    # region: type -> (on-demand, Spot)
    "ap-southeast-1": {
        "t2.small": (0.0292, 0.0088),
        "t3.micro": (0.0132, 0.0044),
        "t3.small": (0.0264, 0.0087),
        "t3.medium": (0.0528, 0.0174),
        "t3.large": (0.1056, 0.0348),
        "t3a.small": (0.0236, 0.0083),
        "t3a.medium": (0.0472, 0.0165),
        "t4g.small": (0.0212, 0.0076),
        "t4g.medium": (0.0424, 0.0153),
        "m5.large": (0.1200, 0.0456),
        "m6i.large": (0.1200, 0.0444),
        "c5.large": (0.0980, 0.0392),
        "c6i.large": (0.0980, 0.0382),
    },
    "ap-south-1": {
        "t2.small": (0.0248, 0.0074),
        "t3.micro": (0.0112, 0.0039),
        "t3.small": (0.0224, 0.0078),
        "t3.medium": (0.0448, 0.0157),
        "t3.large": (0.0896, 0.0314),
        "t3a.small": (0.0123, 0.0049),
        "t3a.medium": (0.0246, 0.0098),
        "t4g.small": (0.0112, 0.0045),
        "t4g.medium": (0.0224, 0.0090),
        "m5.large": (0.1010, 0.0394),
        "m6i.large": (0.1010, 0.0384),
        "c5.large": (0.0850, 0.0340),
        "c6i.large": (0.0850, 0.0332),
    },
    "eu-central-1": {
        "t2.small": (0.0268, 0.0080),
        "t3.micro": (0.0120, 0.0042),
        "t3.small": (0.0240, 0.0084),
        "t3.medium": (0.0480, 0.0168),
        "t3.large": (0.0960, 0.0336),
        "t3a.small": (0.0216, 0.0076),
        "t3a.medium": (0.0432, 0.0151),
        "t4g.small": (0.0192, 0.0069),
        "t4g.medium": (0.0384, 0.0138),
        "m5.large": (0.1150, 0.0449),
        "m6i.large": (0.1150, 0.0437),
        "c5.large": (0.0970, 0.0388),
        "c6i.large": (0.0970, 0.0378),
    },
    "eu-west-1": {
        "t2.small": (0.0250, 0.0075),
        "t3.micro": (0.0114, 0.0038),
        "t3.small": (0.0228, 0.0075),
        "t3.medium": (0.0456, 0.0150),
        "t3.large": (0.0912, 0.0301),
        "t3a.small": (0.0204, 0.0071),
        "t3a.medium": (0.0408, 0.0143),
        "t4g.small": (0.0184, 0.0066),
        "t4g.medium": (0.0368, 0.0132),
        "m5.large": (0.1070, 0.0417),
        "m6i.large": (0.1070, 0.0407),
        "c5.large": (0.0960, 0.0384),
        "c6i.large": (0.0960, 0.0374),
    },
    "us-east-1": {
        "t2.small": (0.0230, 0.0069),
        "t3.micro": (0.0104, 0.0034),
        "t3.small": (0.0208, 0.0069),
        "t3.medium": (0.0416, 0.0137),
        "t3.large": (0.0832, 0.0275),
        "t3a.small": (0.0188, 0.0066),
        "t3a.medium": (0.0376, 0.0132),
        "t4g.small": (0.0168, 0.0060),
        "t4g.medium": (0.0336, 0.0121),
        "m5.large": (0.0960, 0.0374),
        "m6i.large": (0.0960, 0.0365),
        "c5.large": (0.0850, 0.0340),
        "c6i.large": (0.0850, 0.0332),
    },
}
_COLUMNS["us-west-2"] = _COLUMNS["us-east-1"]

USD_PER_HOUR: dict[tuple[str, str, str], float] = {
    (region, instance_type, market): price
    for region, types in _COLUMNS.items()
    for instance_type, pair in types.items()
    for market, price in zip(("on-demand", "spot"), pair, strict=True)
}
"""(region, instance type, market) -> USD per hour."""
