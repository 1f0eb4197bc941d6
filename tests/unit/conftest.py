"""How the property tests of this folder run."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A busy machine is no failure: nothing here measures time.
settings.register_profile(
    "unit",
    settings(),
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("unit")
