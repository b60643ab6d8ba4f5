"""Adding workers: where they are placed, what a refused launch means, and when they have joined."""
