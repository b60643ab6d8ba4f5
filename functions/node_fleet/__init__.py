"""node-fleet: what the Lambdas share. domain/ decides, adapters/ talk to the outside, the rest joins them."""
