"""What does `perdure init` write? The files beside this one, as they are."""

from __future__ import annotations
