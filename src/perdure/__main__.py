"""What does `python -m perdure` do? The same as `perdure`."""

from __future__ import annotations

from perdure.surfaces.cli import main

if __name__ == "__main__":
    main()
