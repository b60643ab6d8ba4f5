"""Money: prices, the fleet's cost, the control plane's own bill, and the weekly report."""
