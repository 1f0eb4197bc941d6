"""Does the command line do what a person and a script expect of it?"""

from __future__ import annotations
