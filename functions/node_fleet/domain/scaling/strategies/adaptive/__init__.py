"""The strategy adaptive: sizes the fleet by what pods request, and learns headroom and the scale-down delay."""
