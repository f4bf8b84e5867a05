"""Run the attempts of one call at one or several upstreams: fall back, hedge, and keep to one deadline."""
